"""Values and rules. Nothing here reads a clock, a file, a database or the network."""
