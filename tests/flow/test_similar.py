"""Similar sources of a real board: what a copy is, who isn't compared, and who may see it, every way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import psycopg
import pytest

from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting import comparing
from kbslurm.api.hosting.comparing import OF_EACH
from kbslurm.cli.output import printing
from kbslurm.client.http import Client
from kbslurm.domain.access import BoardRole
from kbslurm.domain.similarity import LEAST, document
from kbslurm.domain.source import bundled
from kbslurm.errors import Invalid, KbslurmError, NotFound
from kbslurm.flow.submit import accept
from kbslurm_eval.shared.wire import Mode
from tests.command_line import CommandLine
from tests.disguises import renamed
from tests.flow.stage import HandClock
from tests.flow.test_pages import browsing, csrf
from tests.honest_kernels import SOFTMAX
from tests.popcorn.served_api import ADMIN, ServedApi, served

T = TypeVar("T")
KERNEL = SOFTMAX["cuda_block"]
COPY = renamed(KERNEL, 3)


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


def submitted(
    api: ServedApi, by: str, text: str, board: str = "transpose", *, file_name: str = "k.py", mode: Mode = "test"
) -> int:
    clock = api.context.clock
    assert isinstance(clock, HandClock)
    clock.go(60)
    person = api.store.people.ensure(by)
    return int(accept(api.store.intake, person.id, board, file_name, text, mode, ["H100"], api.now).submission_id)


def enrolled(api: ServedApi, name: str, section: str, team: str | None = None, course: str = "gpu") -> None:
    with psycopg.connect(api.store.url, autocommit=True) as connection:
        connection.execute(b"UPDATE leaderboard SET course = %s WHERE name = 'transpose'", (course,))
        connection.execute(
            b"INSERT INTO roster (course, person_id, section, team, added_at) VALUES (%s, %s, %s, %s, now())",
            (course, api.store.people.ensure(name).id, section, team),
        )


def last_year(api: ServedApi, host: Client) -> str:
    """Another board with the same problem."""
    held = api.store.boards.get("transpose")
    host.new_board("last-year", problem=held.problem_name, gpus=["H100"])
    return "last-year"


def people(found: object) -> list[tuple[str, str]]:
    assert isinstance(found, dict)
    return [(row["left"]["name"], row["right"]["name"]) for row in found["pairs"]]


def test_a_copy_is_found_and_shown_side_by_side(api: ServedApi, host: Client) -> None:
    mine, theirs = submitted(api, "ada", KERNEL), submitted(api, "bea", COPY)
    submitted(api, "bea", COPY)  # the same once more counts once
    submitted(api, "cyd", SOFTMAX["triton_online"])
    found = host.similar("transpose")
    (row,) = found["pairs"]
    assert (row["left"]["submission"], row["right"]["submission"], row["pairs"]) == (mine, theirs, 1)
    assert row["similarity"] > 90 and (found["sources"], found["people"], found["cut"]) == (3, 3, [])
    assert "never a verdict" in found["note"]
    pair = host.similar_pair(mine, theirs)
    assert pair["left"]["files"][0]["text"] == KERNEL and pair["right"]["name"] == "bea"
    line = next(n for n, text in enumerate(KERNEL.splitlines(), 1) if "peak = reduce" in text)
    for side in ("left", "right"):
        assert any(first <= line <= last for first, last in pair[side]["files"][0]["marked"])
    acts = [(entry["act"], entry["subject"]) for entry in host.audit(limit=2)]
    assert acts == [
        ("similar_pair", f"submission:{mine}"),
        ("similar", f"board:{api.store.boards.get('transpose').id}"),
    ]


def test_sections_teams_and_earlier_boards(api: ServedApi, host: Client) -> None:
    for name, section, team in (("ada", "A", "x"), ("bea", "B", "x"), ("cyd", "B", None), ("dan", "C", None)):
        enrolled(api, name, section, team)
    submitted(api, "ada", KERNEL)
    submitted(api, "bea", COPY)
    assert people(host.similar("transpose")) == [], "one team"
    submitted(api, "cyd", renamed(KERNEL, 8))
    submitted(api, "dan", SOFTMAX["triton_online"])
    assert sorted(people(host.similar("transpose"))) == [("ada", "cyd"), ("bea", "cyd")]
    assert people(host.similar("transpose", section="a")) == [("ada", "cyd")]
    assert people(host.similar("transpose", section="C")) == []
    with pytest.raises(NotFound, match="there is no submission of section 'Z'"):
        host.similar("transpose", section="Z")

    other = last_year(api, host)
    submitted(api, "old", SOFTMAX["triton_online"], other)
    submitted(api, "older", SOFTMAX["triton_online"], other)
    submitted(api, "dan", renamed(KERNEL, 9), other)
    assert people(host.similar("transpose", section="C")) == []
    found = host.similar("transpose", section="C", others=[other, "TRANSPOSE"])
    assert found["others"] == [other] and ("dan", "old") in people(found)
    assert all("dan" in pair for pair in people(found)), "nobody is compared with what they did themselves"
    assert ("old", "older") not in people(host.similar("transpose", others=[other])), "that is last year's"


def test_what_was_taken_back_or_handed_out_is_no_source_and_who_was_deleted_has_a_pseudonym(
    api: ServedApi, host: Client
) -> None:
    submitted(api, "ada", KERNEL)
    taken = submitted(api, "bea", COPY)
    submitted(api, "cyd", renamed(KERNEL, 4))
    problem = api.store.boards.get("transpose").problem
    given = max((*problem.files.values(), *problem.templates.values()), key=len)
    assert len(document({"k.py": given}, submission=1, person=1, side="").marks) > LEAST
    for name in ("eve", "fay"):
        submitted(api, name, given + f"\n# {name}\n")
    host.delete_any(taken)
    host.delete_user("cyd")
    found = host.similar("transpose")
    (row,) = found["pairs"]
    assert row["left"]["name"] == "ada" and row["right"]["name"].startswith("deleted-")
    with pytest.raises(NotFound, match="source of submission"):
        host.similar_pair(row["left"]["submission"], taken)


def test_several_files_and_many_sources_of_one_person(api: ServedApi, host: Client) -> None:
    cuda = KERNEL.partition('r"""')[2].partition('"""')[0]
    files = {
        "main.py": b"from k import run\n\n\ndef custom_kernel(data):\n    return run(data)\n",
        "k.cu": cuda.encode(),
    }
    submitted(api, "ada", bundled(files, "main.py").text, file_name="main.py")
    for number in range(OF_EACH + 2):
        submitted(api, "bea", f"{COPY}\nx = {'y + ' * number}z\n")
    found = host.similar("transpose")
    assert people(found) == [("ada", "bea")] and found["left_out"] == 2 and found["pairs"][0]["pairs"] == OF_EACH
    pair = host.similar_pair(*(found["pairs"][0][side]["submission"] for side in ("left", "right")))
    assert [(file["name"], bool(file["marked"])) for file in pair["left"]["files"]] == [
        ("main.py", False),
        ("k.cu", True),
    ]


def test_more_sources_than_fit_are_the_newest_of_each(
    api: ServedApi, host: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "SOURCES_CAP", 5)
    submitted(api, "ada", KERNEL)
    numbers = [submitted(api, "bea", f"{COPY}\nx = {'y + ' * number}z\n") for number in range(6)]
    found = host.similar("transpose")
    assert (found["sources"], found["left_out"], found["people"]) == (5, 2, 2)
    (pair,) = found["pairs"]
    assert pair["pairs"] == 4 and pair["right"]["submission"] in numbers[2:]
    for number in range(5):
        submitted(api, f"one-{number}", f"{COPY}\nx = {number}\n")
    with pytest.raises(Invalid, match="7 people's sources are too many to compare at once"):
        host.similar("transpose")


def test_what_ranks_is_compared_however_much_is_submitted_after_it(api: ServedApi, host: Client) -> None:
    """First as a test, then as what counts, and then enough variants to move it out of sight."""
    submitted(api, "ada", KERNEL)
    submitted(api, "bea", COPY)
    for number in range(OF_EACH):
        submitted(api, "bea", f"def custom_kernel(data):\n    return {number}\n")
    submitted(api, "bea", COPY, mode="leaderboard")
    for number in range(OF_EACH):
        submitted(api, "bea", f"def custom_kernel(data):\n    return -{number}\n")
    found = host.similar("transpose")
    assert people(found) == [("ada", "bea")]


def test_only_graders_of_every_board_may_look(api: ServedApi, host: Client) -> None:
    mine = submitted(api, "ada", KERNEL)
    submitted(api, "bea", COPY)
    other = last_year(api, host)
    theirs = submitted(api, "old", COPY, other)
    api.store.people.ensure("tom")
    ranks: tuple[tuple[BoardRole, bool], ...] = (("observer", False), ("grader", True))
    for role, is_allowed in ranks:
        host.set_board_role("transpose", "tom", role)
        token = api.store.tokens.issue(api.store.people.ensure("tom").id, now=api.now)
        with Client(api.url, admin=token) as tom:
            if is_allowed:
                assert people(tom.similar("transpose")) == [("ada", "bea")]
            else:
                with pytest.raises(KbslurmError, match="grader"):
                    tom.similar("transpose")
            with pytest.raises(KbslurmError):
                tom.similar("transpose", others=[other])
            for two in ((mine, theirs), (theirs, mine)):
                with pytest.raises(KbslurmError):
                    tom.similar_pair(*two)
    with httpx.Client(base_url=api.url) as nobody:
        assert nobody.get("/admin/leaderboards/transpose/similar").status_code == 401
    with pytest.raises(KbslurmError, match="per cent"):
        host.similar("transpose", at_least=5)
    with pytest.raises(KbslurmError, match="20"):
        host.similar("transpose", others=["transpose"] * 21)
    with pytest.raises(Invalid, match="compared with itself"):
        host.similar_pair(mine, mine)
    with pytest.raises(NotFound):
        host.similar("nowhere")


def test_the_command_lists_pairs_and_writes_pages_that_escape(api: ServedApi, host: Client, tmp_path: Path) -> None:
    mine = submitted(api, "ada", KERNEL + "\nMARK = '<script>alert(1)</script>'\n")
    theirs = submitted(api, "b<b>ea", COPY)
    token = api.store.tokens.issue(api.store.people.ensure("hana", "staff").id, now=api.now)
    for kbslurm in (
        CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url}),
        CommandLine(cwd=tmp_path, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token}),
    ):
        told = kbslurm("similar", "transpose")
        assert told.code == 0 and f"#{mine} #{theirs}" in told.out and "never a verdict" in told.out, told.err
        assert [row["right"]["name"] for row in kbslurm("similar", "transpose", "--json").json()["pairs"]] == ["b<b>ea"]
        told = kbslurm("similar", "transpose", "--format", "html", "--out", "pages")
        assert told.code == 0, told.err
        index, pair = ((tmp_path / "pages" / name).read_text() for name in ("index.html", f"pair-{mine}-{theirs}.html"))
        assert f'href="pair-{mine}-{theirs}.html"' in index and "b&lt;b&gt;ea" in index
        assert "<script" not in pair and "&lt;script&gt;" in pair and "<mark>" in pair
        for words in (
            ("--format", "pdf"),
            ("--format", "html"),
            ("--out", "x"),
            ("--at-least", "3"),
            ("--with", "none"),
        ):
            assert kbslurm("similar", "transpose", *words).code == 2, words
        told = kbslurm("similar", "transpose", "--format", "html", "--out", "pages/index.html/x")
        assert told.code == 2 and "can't write the pages" in told.err
    assert "no two people's" in kbslurm("similar", "transpose", "--at-least", "100").out


def test_whoever_waits_is_told_how_far_it_is(api: ServedApi, host: Client) -> None:
    """In the database source by source; of a service, that it is at work."""
    mine, theirs = submitted(api, "ada", KERNEL), submitted(api, "bea", COPY)
    near, far = Told(), Told()
    work = at_work(api.context, "hana", None)
    assert (
        people(work.similar("transpose", watch=near))
        == people(host.similar("transpose", watch=far))
        == [("ada", "bea")]
    )
    assert near.phases == [("reading sources", 2), ("comparing sources", 2)] and mine < theirs
    assert far.phases == [(f"comparing at {api.url}", 1)]


def test_the_command_shows_it_on_a_terminal(
    api: ServedApi, host: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(api, "ada", KERNEL)
    submitted(api, "bea", COPY)
    told: list[str] = []

    @contextmanager
    def progress(quiet: bool) -> Iterator[printing.Tell]:
        yield lambda beat: None if quiet else told.append(str(beat["phase"]))

    monkeypatch.setattr(printing, "progress", progress)
    token = api.store.tokens.issue(api.store.people.ensure("hana", "staff").id, now=api.now)
    database = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})
    service = CommandLine(cwd=tmp_path, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token})
    for kbslurm, words in (
        (database, ["reading sources", "comparing sources"]),
        (service, [f"comparing at {api.url}"]),
    ):
        assert kbslurm("similar", "transpose", "--json").code == 0 and told == []
        assert kbslurm("similar", "transpose", "--format", "html", "--out", "pages").code == 0
        assert told == [*words, "reading pairs"]
        told.clear()


class Told:
    """Somebody who waits: each phase, and how many rows it had."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, int]] = []

    def __call__(self, rows: Iterable[T], phase: str, /) -> Iterator[T]:
        taken = list(rows)
        self.phases.append((phase, len(taken)))
        return iter(taken)


def test_the_staff_page_shows_pairs_to_staff_alone(api: ServedApi, host: Client) -> None:
    mine, theirs = submitted(api, "ada", KERNEL + "\nMARK = '<b>here</b>'\n"), submitted(api, "bea", COPY)
    with browsing(api, "hana", "staff") as hana, browsing(api, "ada") as ada:
        token = csrf(hana.get("/staff/board/transpose").text)
        page = hana.post("/staff/board/transpose/similar", data={"csrf": token, "at_least": "60"})
        assert page.status_code == 200 and f"#{mine} and #{theirs}" in page.text and "never a verdict" in page.text
        pair = hana.post("/staff/board/transpose/similar-pair", data={"csrf": token, "left": mine, "right": theirs})
        assert pair.status_code == 200 and "&lt;b&gt;here" in pair.text and "<b>here" not in pair.text
        assert len(re.findall("<mark>", pair.text)) > 40
        line = next(n for n, text in enumerate(KERNEL.splitlines(), 1) if "peak = reduce" in text)
        assert f"{line:5} </span><mark>    peak = reduce" in pair.text
        assert host.audit(limit=1)[0]["by"] == "hana"
        for act, form in (
            ("similar", {"at_least": "x"}),
            ("similar", {"others": "nowhere"}),
            ("similar-pair", {"left": "x", "right": "1"}),
            ("similar-pair", {"left": "1", "right": "999999"}),
        ):
            answer = hana.post(f"/staff/board/transpose/{act}", data={"csrf": token, **form})
            assert answer.status_code in (400, 404), (act, form, answer.status_code)
        hers = csrf(ada.get("/me").text)
        for act in ("similar", "similar-pair"):
            answer = ada.post(
                f"/staff/board/transpose/{act}", data={"csrf": hers, "left": str(mine), "right": str(theirs)}
            )
            assert answer.status_code in (403, 404) and "peak" not in answer.text
