"""Times and GPU types that hosts mistype: refused or told, with the command line and over HTTP, on real rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from kbslurm.problems import loading
from kbslurm.store.postgres import PostgresStore
from tests.command_line import CommandLine
from tests.popcorn.served_api import ADMIN, ServedApi, served

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
PROBLEM = str(EXAMPLES / "transpose")
ZONE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?(?! [A-Z]|:\d)")
SHORT = ("--reference", PROBLEM, "--gpus", "H100")


@pytest.fixture
def kbslurm(tmp_path: Path, database_url: str) -> CommandLine:
    (tmp_path / "kbslurm.toml").write_text(
        f"[daemon]\nstate_dir = {json.dumps(str(tmp_path))}\n[daemon.local]\nslots = {{ H100 = 1, A100 = 1 }}\n"
    )
    with PostgresStore(database_url) as store:
        for name in ("ada", "bob"):
            store.people.add(name)
        store.boards.add("board", loading.load(EXAMPLES / "transpose"), gpus=["H100"], zone="Europe/Berlin")
    return CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path) as running:
        yield running


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("board", "create", "new", *SHORT, "--deadline", "2020-01-01"), "2020-01-01 23:59 UTC has passed already"),
        (("board", "edit", "board", "--deadline", "2020-01-01"), "2020-01-01 23:59 Europe/Berlin has passed already"),
        (("board", "extend", "board", "bob", "2020-01-01"), "the extension 2020-01-01 23:59 Europe/Berlin has passed"),
        (("board", "extend", "board", "bob", "2099-03-29 02:30"), "doesn't exist in Europe/Berlin"),
        (("board", "edit", "board", "--deadline", "2030-10-27 02:30"), "happens twice in Europe/Berlin"),
    ],
)
def test_a_time_that_can_not_be_meant_is_refused_and_changes_nothing(
    kbslurm: CommandLine, database_url: str, words: tuple[str, ...], says: str
) -> None:
    said = kbslurm(*words)
    assert said.code == 2 and says in said.err, said.err
    with PostgresStore(database_url) as store:
        (board,) = store.boards.all()
        assert board.deadline_at is None and not store.events.audit_log(limit=1)


def test_the_api_refuses_them_too(api: ServedApi) -> None:
    api.store.people.add("bob")
    with httpx.Client(base_url=api.url, headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60) as http:
        sent = {"person": "bob", "until": "2020-01-01 18:00"}
        late = http.post("/admin/leaderboards/transpose/extend", json=sent)
        assert late.status_code == 400 and "2020-01-01 18:00 UTC has passed already" in late.json()["detail"]
        skipped = http.post(
            "/admin/leaderboards/upload",
            params={"name": "new", "gpu": "H100", "deadline": "2030-03-31 02:30", "zone": "Europe/Berlin"},
            files={"file": ("k.py", (EXAMPLES / "one_file/running_sum.py").read_bytes())},
        )
        assert skipped.status_code == 400 and "doesn't exist in Europe/Berlin" in skipped.json()["detail"]


def test_a_gpu_type_that_no_place_has_is_told_with_those_that_there_are(kbslurm: CommandLine) -> None:
    made = kbslurm("board", "create", "new", "--reference", PROBLEM, "--gpus", "h100,H1OO", "--json")
    assert made.code == 0 and made.json()["gpus"] == ["H100", "H1OO"]
    assert "no place offers H1OO" in made.err and "A100, H100" in made.err
    edited = kbslurm("board", "edit", "new", "--gpus", "a100,B2OO")
    assert edited.code == 0 and "no place offers B2OO" in edited.err and "A100, H100" in edited.err
    assert kbslurm("board", "edit", "new", "--gpus", "a100").err == ""


def test_every_time_in_a_table_has_its_zone(kbslurm: CommandLine) -> None:
    assert kbslurm("board", "edit", "board", "--deadline", "2099-10-01 18:00").code == 0
    (kbslurm.cwd / "k.py").write_text("def custom_kernel(data):\n    return data\n")
    assert kbslurm("submit", "k.py", "-l", "board").code == 0
    assert kbslurm("user", "token", "issue", "ada").code == 0
    assert kbslurm("board", "extend", "board", "bob", "2099-12-01").code == 0
    for words in (
        ("board", "list"), ("board", "board"), ("history",), ("watch", "1", "--once"), ("audit",), ("user", "list"),
        ("user", "token", "list", "ada"), ("problem", "list"), ("board", "extend", "board", "bob", "2099-12-02"),
    ):  # fmt: skip
        said = kbslurm(*words).out
        assert not ZONE.search(said), f"{words}: {said}"
    assert f"{datetime.now(UTC):%Y-%m-%d}" in kbslurm("audit").out
