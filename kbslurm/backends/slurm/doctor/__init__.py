"""Looks at a cluster: at what Slurm says of itself, at the shared root, and by a small job at each kind of node.

Reading and grading are pure; asking is not. A question that isn't answered is a finding, never an exception.
"""
