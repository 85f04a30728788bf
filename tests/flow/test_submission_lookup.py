"""`kbslurm submission list|show|code`: hosts look through their boards' submissions, authors through their own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from kbslurm.domain.lookup import parsed_since
from kbslurm.domain.run import SubmissionId
from kbslurm.domain.source import bundled
from kbslurm.errors import Invalid
from kbslurm.flow.remove import remove
from kbslurm.flow.submit import accept
from tests.command_line import CommandLine
from tests.flow.stage import HandClock
from tests.flow.test_pages import SECRET_LOG, judged
from tests.popcorn.served_api import GOOD, ServedApi, served

STEERING = GOOD + b"# \x1b]0;owned\x07\x1b[2J \xe2\x80\xae reversed\n"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


def over_http(api: ServedApi, folder: Path, name: str) -> CommandLine:
    token = api.store.tokens.issue(api.store.people.ensure(name).id, now=api.now)
    folder.mkdir(exist_ok=True)
    return CommandLine(cwd=folder, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token})


def numbers(kbslurm: CommandLine, *words: str) -> list[int]:
    said = kbslurm("submission", "list", *words, "--json")
    assert said.code == 0, said.err
    return [one["id"] for one in said.json()["submissions"]]


def test_each_sees_what_their_role_gives_in_the_database_and_over_http(api: ServedApi, tmp_path: Path) -> None:
    store = api.store
    store.boards.add("other", store.boards.get("transpose").problem, gpus=["H100"], now=api.now)
    adas, bobs = judged(api, "ada"), judged(api, "bob")
    eve = store.people.ensure("eve")
    elsewhere = accept(store.intake, eve.id, "other", "k.py", GOOD, "test", ["H100"], api.now).submission_id
    store.people.ensure("hana", "staff")
    greta = store.people.ensure("greta")
    store.roster.set_role_on(store.boards.get("transpose").id, greta.id, "grader", by="host", now=api.now)
    own = accept(store.intake, greta.id, "other", "k.py", GOOD, "test", ["H100"], api.now).submission_id
    everything = [own, elsewhere, bobs, adas]
    sees = {"hana": everything, "greta": [own, bobs, adas], "eve": [elsewhere], "bob": [bobs]}
    database = CommandLine(cwd=tmp_path, env={"DATABASE_URL": store.url})
    assert numbers(database) == everything
    for name, wanted in sees.items():
        far = over_http(api, tmp_path / name, name)
        assert numbers(far) == numbers(database, "--as", name) == wanted, name
        for number in everything:
            near = database("submission", "show", str(number), "--as", name, "--log")
            there = far("submission", "show", str(number), "--log")
            assert (near.code, there.code) == ((0, 0) if number in wanted else (5, 5)), (name, number, there.err)
            hidden = number in (adas, bobs) and name in ("hana", "greta")
            assert (SECRET_LOG in near.out, SECRET_LOG in there.out) == (hidden, hidden), (name, number)
            assert near.out == there.out, "both ways say the same"
            code = far("submission", "code", str(number))
            assert (code.code, "custom_kernel" in code.out) == ((0, True) if number in wanted else (5, False))
    # A helper of one board is told neither of other boards nor of other people.
    store.boards.set_visibility("other", "closed", by="host", now=api.now)
    helper = over_http(api, tmp_path / "greta", "greta")
    assert numbers(helper, "--person", "bob") == [bobs] and numbers(helper, "--person", "bobb") == []
    missing = [helper("submission", "list", "--board", board) for board in ("other", "nowhere")]
    assert [said.code for said in missing] == [2, 2] and "other" not in missing[1].err, missing[1].err
    assert missing[0].err.replace("other", "nowhere") == missing[1].err
    far = over_http(api, tmp_path / "eve", "eve")
    refused = far("submission", "list", "--person", "ada")
    assert refused.code == 4 and "doesn't belong to a host" in refused.err
    assert far("submission", "show", "999").code == 2


def test_a_list_is_narrowed_by_board_person_verdict_mode_and_time(api: ServedApi, tmp_path: Path) -> None:
    store = api.store
    first = judged(api, "ada")
    clock = api.context.clock
    assert isinstance(clock, HandClock)
    clock.go(3600)
    since = api.now
    second = judged(api, "bob")
    ada = store.people.ensure("ada")
    waiting = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
    database = CommandLine(cwd=tmp_path, env={"DATABASE_URL": store.url})
    store.people.ensure("hana", "staff")
    hana, hers = over_http(api, tmp_path / "hana", "hana"), over_http(api, tmp_path / "ada", "ada")
    for words, wanted in (
        ((), [waiting, second, first]),
        (("--board", "TRANSPOSE"), [waiting, second, first]),
        (("--person", "ada"), [waiting, first]),
        (("--verdict", "passed"), [second, first]),
        (("--verdict", "wrong"), []),
        (("--mode", "test"), [waiting]),
        (("--since", since.isoformat()), [waiting, second]),
        (("--limit", "1", "--skip", "1"), [second]),
        (("--person", "ada", "--mode", "leaderboard", "--verdict", "passed"), [first]),
    ):
        assert numbers(database, *words) == numbers(hana, *words) == wanted, words
    assert numbers(hers, "--verdict", "passed") == [first]
    assert numbers(hers, "--mode", "test", "--since", since.isoformat()) == [waiting]
    for words in (("--verdict", "good"), ("--mode", "fast"), ("--since", "soon"), ("--board", "nowhere")):
        said = database("submission", "list", *words)
        assert said.code == 2 and "Traceback" not in said.err, words
    remove(store.submissions, SubmissionId(first), ada.id, "ada", api.now)
    assert numbers(database) == [waiting, second]
    gone = database("submission", "code", str(first))
    assert gone.code == 2 and "its source deleted" in gone.err


def test_code_is_written_as_it_was_sent_and_printed_without_what_steers_a_terminal(
    api: ServedApi, tmp_path: Path
) -> None:
    store, ada = api.store, api.store.people.ensure("ada")
    one = accept(store.intake, ada.id, "transpose", "k.py", STEERING, "test", ["H100"], api.now).submission_id
    files = {"main.py": GOOD, "parts/tiles.py": b"TILE = 32\r\n"}
    text = bundled(files).text.encode()
    two = accept(store.intake, ada.id, "transpose", "main.py", text, "test", ["H100"], api.now).submission_id
    for kbslurm in (
        CommandLine(cwd=tmp_path, env={"DATABASE_URL": store.url}), over_http(api, tmp_path / "ada", "ada"),
    ):  # fmt: skip
        said = kbslurm("submission", "code", str(one), str(two))
        assert said.code == 0 and "owned" in said.out and f"==> #{two} parts/tiles.py <==" in said.out, said.err
        assert not {"\x1b", "\x07", "\u202e"} & set(said.out)
        assert kbslurm("submission", "code", str(one), str(two), "--out", "codes").code == 0
        folder = kbslurm.cwd / "codes"
        assert (folder / str(one) / "k.py").read_bytes() == STEERING
        assert (folder / str(two) / "parts" / "tiles.py").read_bytes() == files["parts/tiles.py"]
        again = kbslurm("submission", "code", str(one), "--out", "codes")
        assert again.code == 2 and "exists already" in again.err
        told = kbslurm("submission", "code", str(two), "--json").json()["submissions"]
        assert told == [{"submission": two, "files": {name: data.decode() for name, data in files.items()}}]


def test_a_service_that_names_files_elsewhere_writes_nothing(tmp_path: Path) -> None:
    from kbslurm.cli.host.submission import _check_free

    for name in ("../evil.py", "/etc/evil.py", "a/../../evil.py", "", "a\\..\\evil.py", "a\x1b.py"):
        with pytest.raises(Invalid, match="unsafe name"):
            _check_free(tmp_path, {1: {name: "x"}})
    assert list(tmp_path.iterdir()) == []


def test_since_is_a_date_a_time_or_how_long_ago() -> None:
    now = datetime(2026, 11, 27, 12, tzinfo=UTC)
    assert parsed_since("12h", now) == now - timedelta(hours=12)
    assert parsed_since("2026-11-27T10:00+02:00", now) == datetime(2026, 11, 27, 8, tzinfo=UTC)
    for wrong in ("", "soon", "0000-01-01", "999999d ago"):
        with pytest.raises(Invalid):
            parsed_since(wrong, now)
    with pytest.raises(Invalid):
        parsed_since("999999d", now)


def test_over_http_what_a_filter_cannot_be_is_refused(api: ServedApi) -> None:
    token = api.store.tokens.issue(api.store.people.ensure("hana", "staff").id, now=api.now)
    headers = {"Authorization": f"Bearer {token}", "X-Popcorn-Cli-Id": token}
    for path in ("/admin/submissions", "/user/submissions"):
        for query in ("verdict=good", "mode=fast", "since=soon", "limit=101"):
            assert httpx.get(f"{api.url}{path}?{query}", headers=headers, timeout=60).status_code == 422, query
        for since in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-01"):
            answer = httpx.get(f"{api.url}{path}", params={"since": since}, headers=headers, timeout=60)
            assert answer.status_code in (200, 422), (since, answer.text)


def test_a_helper_of_a_board_sees_nothing_of_a_deleted_one_that_had_its_name(api: ServedApi) -> None:
    store = api.store
    number = judged(api, "ada")
    problem = store.boards.get("transpose").problem
    store.boards.delete("transpose", force=True, by="host", now=api.now)
    anew = store.boards.add("transpose", problem, gpus=["H100"], now=api.now)
    greta = store.people.ensure("greta")
    store.roster.set_role_on(anew.id, greta.id, "owner", by="host", now=api.now)
    token = store.tokens.issue(greta.id, now=api.now)
    headers = {"Authorization": f"Bearer {token}"}
    for method, path in (("GET", ""), ("GET", f"/similar/{number}"), ("POST", "/cancel"), ("DELETE", "")):
        said = httpx.request(method, f"{api.url}/admin/submissions/{number}{path}", headers=headers, timeout=60)
        assert said.status_code == 401 and SECRET_LOG not in said.text, (method, path, said.text)
