"""Whether this machine can give a test cluster control groups, and the one line that says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import host_groups


def test_a_machine_without_them_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_groups, "CGROUPS", tmp_path)
    assert host_groups.lacking() == f"{tmp_path} has no freezer, memory, devices, cpuacct"
    for name in host_groups.CONTROLLERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text("1\n")
    assert host_groups.lacking() == ""
    busy = tmp_path / "memory" / "slurm_h1" / "uid_1000"
    busy.mkdir(parents=True)
    (busy / "cgroup.procs").write_text("")
    assert host_groups.lacking() == ""
    (busy / "cgroup.procs").write_text("77\n")
    assert host_groups.lacking() == f"another cluster has its jobs in {busy}"
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert "version 2 only" in host_groups.lacking()
