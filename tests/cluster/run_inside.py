"""Runs the tests of `inside/` on the cluster's login node and brings every single result back to this session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.services import in_ci

UP = Path(__file__).with_name("up.py")
CHECKOUT = Path(__file__).resolve().parents[2]
RUN_S = 1500.0
REPORTS = "KBSLURM_TEST_REPORTS"
INSIDE = "KBSLURM_TEST_INSIDE"
VIA = "KBSLURM_TEST_VIA"  # "rest" or "ssh": walks and faults reach Slurm through slurmrestd, or over ssh
RUNTIME = "KBSLURM_TEST_RUNTIME"  # "none": walks and faults go without containers, as on a tree without Apptainer
PACE = "KBSLURM_TEST_PACE"  # "default": faults in real time, at the pace of a site that says nothing about it


class Cluster:
    """A running test cluster: commands inside, and orders for what only its administrator may do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared = folder / "shared"

    def up(self, *arguments: str, timeout_s: float = 600.0) -> subprocess.CompletedProcess[str]:
        """Call up.py for this cluster."""
        command, *rest = arguments
        return subprocess.run(
            [sys.executable, str(UP), command, "--dir", str(self.folder), *rest],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def tests(self, targets: Sequence[str], reports: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run these tests inside as kb; each report is a line of the file `reports` in the shared folder."""
        environment |= {INSIDE: "1", REPORTS: f"/shared/{reports}", "PYTHONDONTWRITEBYTECODE": "1"}
        if in_ci():
            environment["CI"] = "true"
        if asked := os.environ.get("KBSLURM_TEST_TORCH_IMAGE"):
            environment["KBSLURM_TEST_TORCH_IMAGE"] = asked
        environment |= {name: os.environ[name] for name in (PACE, VIA, RUNTIME) if os.environ.get(name)}
        given = [f"--env={name}={value}" for name, value in environment.items()]
        with AdminOrders(self):
            return self.up(
                *("exec", "--user", "kb", "--cwd", "/kb/src", *given, "--", "/kb/venv/bin/python", "-m", "pytest"),
                *("-p", "no:cacheprovider", "-q", "-x" if os.environ.get("KBSLURM_TEST_FIRST") else "-q", *targets),
                timeout_s=RUN_S,
            )


class AdminOrders:
    """Does what tests inside ask for, one order at a time, while they run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._folder = cluster, cluster.shared / ".control"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="admin-orders", daemon=True)

    def __enter__(self) -> AdminOrders:
        self._folder.mkdir(exist_ok=True)
        os.chown(self._folder, 1000, 1000)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=60)

    def _serve(self) -> None:
        while not self._over.wait(0.02):
            for ask in sorted(self._folder.glob("*.ask")):
                told = json.loads(ask.read_text())
                ask.unlink()
                answer = self._done(told)
                fresh = ask.with_suffix(".tmp")
                fresh.write_text(json.dumps(answer))
                fresh.rename(ask.with_suffix(".answer"))

    def _done(self, told: dict[str, Any]) -> dict[str, Any]:
        call = ["ctl", *told["ctl"]] if "ctl" in told else ["exec", "--user", "root", "--", *told["root"]]
        with suppress(subprocess.TimeoutExpired):
            done = self._cluster.up(*call, timeout_s=150)
            return {"status": done.returncode, "text": done.stdout}
        return {"status": 124, "text": "it took too long"}
