"""Everything that `kbslurm` prints, as text or JSON."""
