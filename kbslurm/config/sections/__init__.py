"""The sections of kbslurm.toml, one file each: settings, defaults and checks."""
