"""`kbslurm try` and `kbslurm problem verify`: a submission judged on this machine, without a service."""
