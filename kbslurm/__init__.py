"""A GPU kernel competition that lives on a university's own Slurm cluster."""

from __future__ import annotations

__version__ = "0.1.0"
