"""The wheel carries the shared folders below kbslurm/_share/, where kbslurm.config.shared_folders finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED = ("alembic", "containers", "eval", "examples", "sbatch_templates", "site-configs")


class SharedFolders(BuildHookInterface):  # type: ignore[type-arg,misc,unused-ignore]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Editable installs read the checkout itself: a copy would only go stale."""
        if version == "editable":
            return
        for name in SHARED:
            folder = Path(self.root) / name
            if not folder.is_dir():
                raise FileNotFoundError(f"the shared folder {name}/ is missing from {self.root}")
            build_data["force_include"][str(folder)] = f"kbslurm/_share/{name}"
        workflow = Path(self.root) / ".github" / "workflows" / "kbslurm-run.yml"
        build_data["force_include"][str(workflow)] = f"kbslurm/_share/{workflow.name}"
