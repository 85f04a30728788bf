"""The hosts' calls, by subject."""
