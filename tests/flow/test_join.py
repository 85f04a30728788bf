"""`kbslurm join`: from an invitation to a rank, without an account before; and that a code finds out nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.command_line import CommandLine, Said
from tests.flow.stage import HandClock
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served, working

ROSTER = "name,email\nAda Lovelace,ada@example.edu\nGrace Hopper,grace@example.edu\n"
GONE = "unknown, was used already or revoked, or has expired"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        built.store.boards.set_visibility("transpose", "closed", by="root", now=built.now)
        yield built


class Laptop:
    """A machine that knows no service."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.home = home
        self.run = CommandLine(cwd=home, env={"XDG_CONFIG_HOME": str(home / "conf"), "KBSLURM_PERSON": "nova"})

    def __call__(self, *words: str, **env: str) -> Said:
        return self.run(*words, **env)

    @property
    def tokens(self) -> dict[str, str]:
        told = json.loads(self.file.read_text())["contexts"]
        return {name: one["token"] for name, one in told.items()}

    @property
    def file(self) -> Path:
        return self.home / "conf/kbslurm/tokens.json"


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    return Laptop(tmp_path / "laptop")


def code_of(api: ServedApi) -> str:
    return api.store.invites.make(["transpose"], 1, by="root", newcomers=True, now=api.now)[1][0]


def links(api: ServedApi) -> dict[str, str]:
    """Roster invitations to the course that the board is of."""
    headers = {"Authorization": f"Bearer {ADMIN}"}
    file = {"file": ("roster.csv", ROSTER.encode())}
    sent = httpx.post(f"{api.url}/admin/courses/gpu/import", files=file, headers=headers, timeout=60)
    assert sent.status_code == 200, sent.text
    api.store.boards.edit("transpose", by="root", course="gpu", now=api.now)
    made = httpx.post(f"{api.url}/admin/courses/gpu/invitations", json={}, headers=headers, timeout=60).json()
    return {one["person"]: f"{api.url}/join/{one['code']}" for one in made["invitations"]}


def test_five_commands_lead_from_an_invitation_to_a_rank(database_url: str, tmp_path: Path, laptop: Laptop) -> None:
    with served(database_url, tmp_path / "service") as api, working(api, tmp_path / "service"):
        api.store.boards.set_visibility("transpose", "closed", by="root")
        api.store.boards.edit("transpose", by="root", publishes_reference=True)
        came = laptop("join", code_of(api), api.url)
        assert came.code == 0, came.err
        assert "as nova" in came.out and "problem pull transpose" in came.out
        pulled = laptop("problem", "pull", "transpose")
        assert pulled.code == 0, pulled.err
        mine = laptop.home / "transpose" / "submission.py"
        assert "NotImplementedError" in mine.read_text(), "the template"
        mine.write_bytes(GOOD)
        tried = laptop("try", "transpose", "--mode", "test")
        assert tried.code == 0 and "passed" in tried.out and "unofficial" in tried.out, tried.out + tried.err
        sent = laptop("submit", str(mine), "--board", "transpose", "--gpu", "H100", "--json")
        assert sent.code == 0, sent.err
        assert laptop("watch", str(sent.json()["submission"])).code == 0
        (place,) = laptop("board", "transpose", "--gpu", "H100", "--json").json()["standings"]["H100"]
        assert (place["rank"], place["entry"]["person"]) == (1, "nova")


def test_a_newcomer_gets_an_account_and_a_token_of_their_own(api: ServedApi, laptop: Laptop) -> None:
    code = code_of(api)
    told = laptop("join", code.lower(), api.url, "--name", "Nova Stern", "--context", "course", "--json")
    assert told.code == 0, told.err
    assert told.json() == {
        "url": api.url, "context": "course", "person": "Nova Stern", "boards": ["transpose"], "already": False,
        "file": str(laptop.file),
    }  # fmt: skip
    assert (laptop.file.stat().st_mode & 0o777) == 0o600
    assert laptop.tokens["course"] not in told.out + told.err
    assert laptop("whoami", "--json").json()["person"] == "Nova Stern"
    assert [row["board"] for row in laptop("board", "list", "--json").json()] == ["transpose"]
    again = laptop("join", code)
    assert again.code == 0 and "Nova Stern has joined already" in again.out
    assert laptop("join", code, "--json").json()["already"] is True
    (held,) = api.store.invites.of_board("transpose")
    assert held.person == "Nova Stern"


def test_who_is_signed_in_joins_as_who_they_are(api: ServedApi, laptop: Laptop) -> None:
    first, second = code_of(api), code_of(api)
    assert laptop("join", first, api.url).code == 0
    api.store.invites.revoke(first, by="root", now=api.now)
    assert laptop("board", "list", "--json").json() == []
    told = laptop("join", second)
    assert told.code == 0 and "joined as nova" in told.out
    assert [one.name for one in api.store.people.all() if one.name.startswith("nova")] == ["nova"]


def test_a_rosters_link_signs_its_person_in(api: ServedApi, laptop: Laptop) -> None:
    made = links(api)
    told = laptop("join", made["Ada Lovelace"], "--name", "somebody else")
    assert told.code == 0, told.err
    assert "as Ada Lovelace" in told.out and "transpose" in told.out
    again = laptop("join", made["Ada Lovelace"], "--json")
    assert again.code == 0 and again.json() == {
        "url": api.url, "context": again.json()["context"], "person": "Ada Lovelace", "boards": ["transpose"],
        "already": True, "file": None,
    }  # fmt: skip
    other = laptop("join", made["Grace Hopper"])
    assert other.code == 2 and "isn't for Ada Lovelace, who is signed in" in other.err and "--context" in other.err
    assert laptop("join", made["Grace Hopper"], "--context", "grace").code == 0
    assert laptop("whoami", "--json").json()["person"] == "Grace Hopper"
    assert len(laptop.tokens) == 2, "the first is kept"


def test_a_saved_token_that_ended_is_no_hindrance(api: ServedApi, laptop: Laptop) -> None:
    made = links(api)
    assert laptop("join", made["Ada Lovelace"]).code == 0
    (token,) = laptop.tokens.values()
    assert api.store.tokens.revoke_secret(token, now=api.now)
    assert laptop("join", made["Grace Hopper"]).code == 0
    assert laptop("whoami", "--json").json()["person"] == "Grace Hopper"


def test_what_isnt_good_any_more_is_refused_in_one_sentence(api: ServedApi, laptop: Laptop) -> None:
    used, revoked, made = code_of(api), code_of(api), links(api)
    api.store.invites.claim(used, api.store.people.ensure("eve").id, now=api.now)
    api.store.invites.revoke(revoked, by="root", now=api.now)
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(15 * 86_400)
    for invitation in (used, revoked, made["Ada Lovelace"], "H7K2-9QXW-4MZT"):
        told = laptop("join", invitation, api.url)
        assert told.code == 4 and GONE in told.err and "Traceback" not in told.err, told.err
        assert "your saved token" not in told.err
    assert not laptop.file.exists()
    for wrong in ("https://", "kernels.example.edu/join/ABCD", f"{api.url}/board/transpose", "a b", "x" * 600):
        told = laptop("join", wrong, api.url)
        assert told.code == 2 and "invitation" in told.err, wrong
    elsewhere = laptop("join", made["Ada Lovelace"], "http://127.0.0.1:9")
    assert elsewhere.code == 6 and "127.0.0.1:9" in elsewhere.err, "the address that is named goes before the link's"
    assert laptop("join", "H7K2-9QXW-4MZT").code == 2, "no service is configured"


def test_a_name_that_is_somebodys_uses_nothing_up(api: ServedApi, laptop: Laptop) -> None:
    api.store.people.ensure("nova")
    code = code_of(api)
    taken = laptop("join", code, api.url)
    assert taken.code == 2 and "there is already a person 'nova'" in taken.err and "--name" in taken.err
    assert laptop("join", code, api.url, "--name", "person:7").code == 2
    assert laptop("join", code, api.url, "--name", "nova 2").code == 0


def test_a_guessed_code_finds_out_nothing(api: ServedApi) -> None:
    """The same answer whatever is wrong with a code, and whatever name comes with it."""
    used, revoked = code_of(api), code_of(api)
    api.store.invites.claim(used, api.store.people.ensure("eve").id, now=api.now)
    api.store.invites.revoke(revoked, by="root", now=api.now)
    found = {
        (answer.status_code, answer.text)
        for code in (used, revoked, "H7K2-9QXW-4MZT", "x" * 300, "\N{SNOWMAN}")
        for name in (None, "eve", "new", "person:7")
        for answer in [httpx.post(f"{api.url}/user/invitation", json={"code": code, "name": name}, timeout=60)]
    }
    assert len(found) == 1 and found.pop()[0] == 401
    without = httpx.post(f"{api.url}/user/invitation", json={"code": code_of(api)}, timeout=60)
    assert without.status_code == 400 and "needs a name" in without.text


def test_a_code_for_people_who_are_known_makes_nobody(api: ServedApi, laptop: Laptop) -> None:
    """Nor does it tell a guesser that it is one; whoever is known joins by it."""
    code = api.store.invites.make(["transpose"], 1, by="root", now=api.now)[1][0]
    asked = [
        httpx.post(f"{api.url}/user/invitation", json={"code": one, "name": "Mallory"})
        for one in (code, "AAAA-BBBB-CCCC")
    ]
    assert {one.status_code for one in asked} == {401} and asked[0].text == asked[1].text
    came = laptop("join", code, api.url)
    assert came.code != 0 and "kbslurm login" in came.err, came.err
    assert api.store.invites.of_board("transpose")[0].person is None


def test_one_code_makes_one_person_however_many_come_at_once(api: ServedApi) -> None:
    code, barrier = code_of(api), threading.Barrier(8)

    def come(number: int) -> int:
        barrier.wait(60)
        wanted = {"code": code, "name": f"p{number}"}
        return httpx.post(f"{api.url}/user/invitation", json=wanted, timeout=60).status_code

    with ThreadPoolExecutor(8) as pool:
        came = sorted(pool.map(come, range(8)))
    assert came == [200] + [401] * 7
    assert len([one for one in api.store.people.all() if one.name.startswith("p")]) == 1
