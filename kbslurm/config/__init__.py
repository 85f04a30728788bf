"""What a host and a site configure: kbslurm.toml, the sites' files, and the folders that come with kbslurm."""
