"""What can be typed on Discord: one file per kind."""
