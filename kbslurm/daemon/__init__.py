"""The daemon: gives runs to places, watches them, and records the results."""
