"""Slurm: sbatch by submitit's hooks, states by text, evidence by files."""
