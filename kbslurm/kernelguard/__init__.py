"""Runs an external scanner over submissions' source, for staff."""
