"""Runs attempts as processes of this machine."""
