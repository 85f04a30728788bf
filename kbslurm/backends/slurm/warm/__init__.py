"""Warm workers: jobs of ours that hold a GPU (keepers), and attempts that run in them as steps of their own."""
