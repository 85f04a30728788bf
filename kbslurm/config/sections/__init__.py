"""The sections of kbslurm.toml, one file each: what may be set, what it is by default, and what is wrong with it."""
