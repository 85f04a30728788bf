"""Where the ranks of one launch meet."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kbslurm_eval.judge import rank_reference
from kbslurm_eval.shared.process_group import HOST


@pytest.mark.parametrize("told", ["32768\t60999\n", "20000\t30000\n"])
def test_ranks_meet_where_no_connection_of_anybodys_comes_to_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """Once in some thousand tests another program's connection had the port: "Address already in use"."""
    monkeypatch.setattr(rank_reference, "PORTS", str(tmp_path / "range"))
    (tmp_path / "range").write_text(told)
    found = {rank_reference.free_port() for _ in range(50)}
    assert all(1024 <= port < int(told.split()[0]) for port in found)
    assert len(found) > 10, "two runs at once meet at two ports"


@pytest.mark.parametrize("told", [None, "", "1024\t65535\n", "no range"])
def test_they_meet_anyway_where_the_kernel_gives_them_all_or_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None
) -> None:
    monkeypatch.setattr(rank_reference, "PORTS", str(tmp_path / "range"))
    if told is not None:
        (tmp_path / "range").write_text(told)
    with socket.socket() as ear:
        ear.bind((HOST, port := rank_reference.free_port()))
        assert ear.getsockname()[1] == port
