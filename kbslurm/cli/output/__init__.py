"""All that `kbslurm` prints, as text or as JSON."""
