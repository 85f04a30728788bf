"""Tests that run on the cluster's login node, as its user: `../conftest.py` carries them there and results back."""
