"""Runs attempts as calls of functions that are deployed at Modal."""
