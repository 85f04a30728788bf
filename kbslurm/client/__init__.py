"""The typed HTTP client of kbslurm's API, for the command line, the bot and other programs."""
