"""Runs attempts as jobs of a Ray cluster, by its Jobs API."""
