"""Runs attempts as calls of functions deployed on Modal."""
