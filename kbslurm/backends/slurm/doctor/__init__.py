"""Checks a cluster: Slurm's settings, the shared root, and each kind of node through a small job.

Parsing and grading are pure; querying isn't. An unanswered query is a finding, never an exception.
"""
