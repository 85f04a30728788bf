"""A GPU kernel competition that lives on a university's own Slurm cluster."""

from __future__ import annotations

__version__ = "0.1.0"


def load_ipython_extension(shell: object) -> None:
    """`%load_ext kbslurm` in a notebook: `%%submit BOARD` and `%%try PROBLEM`."""
    from importlib import import_module

    import_module("kbslurm.cli.competitor.notebook").load(shell)
