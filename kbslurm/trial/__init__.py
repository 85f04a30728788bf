"""`kbslurm try` and `kbslurm problem verify`: a submission judged here and now, without a service."""
