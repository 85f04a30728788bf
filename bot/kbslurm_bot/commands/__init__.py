"""The Discord commands: one file per kind."""
