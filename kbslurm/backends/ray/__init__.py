"""Runs attempts as jobs of a Ray cluster."""
