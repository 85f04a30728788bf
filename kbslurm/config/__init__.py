"""Configuration: kbslurm.toml, the sites' files, and the folders that come with kbslurm."""
