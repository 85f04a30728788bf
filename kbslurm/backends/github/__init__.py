"""Runs attempts as workflow runs of a GitHub repository."""
