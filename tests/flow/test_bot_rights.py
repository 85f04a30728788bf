"""What a Discord role gives, and what it doesn't: decided by the service at each call, written into nobody's row."""

from __future__ import annotations

import io
import stat
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.client.http import Client
from kbslurm.contract.base import Fine
from kbslurm.contract.people import May, People
from kbslurm.contract.rankings import Places
from kbslurm.contract.rejudging import RejudgingTold
from kbslurm.contract.verifying import Verification, Verifies
from kbslurm.domain.run import PersonId
from kbslurm.errors import Invalid, KbslurmError, NotFound, Refused, TooLarge, Unauthenticated
from kbslurm.problems import loading, upload
from tests.flow.test_bot_announce import ranks
from tests.popcorn.served_api import ADMIN, GOOD, TRANSPOSE, ServedApi, served

BOT_TOKEN = "a-bot-token-for-the-tests-0123456789"
HOST, CREATOR, OTHER = "70001", "70002", "70003"
TOML = f'[discord]\nroles = {{ "{HOST}" = "host", "{CREATOR}" = "creator" }}\n'
ONE_FILE = b"""
import random
TESTS = [{"size": 8, "seed": 1}]
def generate_input(size, seed):
    made = random.Random(seed)
    return [made.random() for _ in range(size)]
def ref_kernel(data):
    return sorted(data)
def check_implementation(data, output):
    return (output == sorted(data), "not sorted")
"""


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, bot=BOT_TOKEN, toml=TOML) as built:
        yield built


def packed(folder: Path, below: str = "") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for file in folder.rglob("*"):
            if file.is_file():
                archive.write(file, below + str(file.relative_to(folder)))
    return made.getvalue()


def test_a_role_gives_its_right_for_one_call_and_to_nobody_for_longer(api: ServedApi) -> None:
    with Client(api.url, admin=BOT_TOKEN) as bot, Client(api.url, admin=ADMIN) as hosts:
        ada = bot.discord_user("501", "ada")
        plain, host = bot.acting_for("discord:501"), bot.acting_for("discord:501", roles=f"2000:1,{HOST}")
        creator = bot.acting_for("discord:501", roles=f"2000:{CREATOR}")
        for call in (
            lambda: host._told("POST", "/admin/leaderboards", json={"directory": str(TRANSPOSE)}),
            lambda: host.update_problems("file:///srv/problems"),
            lambda: host.update_problems(str(TRANSPOSE)),
        ):
            with pytest.raises(Refused, match="files on the server"):
                call()
        assert host.set_accepting(False) is False
        assert host.audit()[0]["by"] == f"ada (Discord role {HOST} in 2000)"
        assert (host.may().host, host.may().gpus) == (True, ("A100", "H100"))
        assert (creator.may().host, creator.may().creator, plain.may().gpus) == (False, True, ())
        for other in (plain, creator, bot.acting_for("discord:501", roles=f"2000:{OTHER},{HOST}0")):
            with pytest.raises(Unauthenticated, match="ada isn't a host"):
                other.set_accepting(True)
        assert api.store.people.by_id(PersonId(ada.id)).role == "participant"  # type: ignore[union-attr]
        for text in ("70001", "2000", f"x:{HOST}", f"2000:{HOST};1"):
            with pytest.raises(Unauthenticated, match="roles can't be read"):
                bot.acting_for("discord:501", roles=text).set_accepting(True)
        assert not api.store.settings.accepts_jobs()
        # Only the bot's word counts, and only for somebody who is known and not banned.
        assert hosts.acting_for("discord:501", roles=f"2000:{HOST}").me().role == "participant"
        with Client(api.url, token=api.store.tokens.issue(PersonId(ada.id), now=api.now)) as own:
            own._headers["X-Kbslurm-Discord-Roles"] = f"2000:{HOST}"
            with pytest.raises(Unauthenticated):
                own.overview()
        with pytest.raises(NotFound):
            bot.acting_for("discord:999", roles=f"2000:{HOST}").overview()
        api.store.people.ban(PersonId(ada.id), now=api.now)
        with pytest.raises(Unauthenticated):
            host.overview()


def test_a_role_shows_what_hosts_see_and_runs_nothing_as_staff(api: ServedApi) -> None:
    store = api.store
    store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
    with Client(api.url, admin=BOT_TOKEN) as bot:
        bot.discord_user("501", "ada")
        host = bot.acting_for("discord:501", roles=f"2000:{HOST}")
        assert bot.acting_for("discord:501").boards() == [] and [one.name for one in host.boards()] == ["transpose"]
        with pytest.raises(Refused, match="is private"):
            host.submit("transpose", "H100", "test", "k.py", GOOD)
        # A token that was linked through the bot has the person's own rights.
        with Client(api.url) as device:
            pending = device.pending()
        host.link_mine(pending)
        with Client(api.url, token=pending) as own:
            assert own.boards() == []


def test_creators_make_boards_and_nothing_else(api: ServedApi) -> None:
    with Client(api.url, admin=BOT_TOKEN) as bot:
        ada = bot.discord_user("501", "ada")
        creator = bot.acting_for("discord:501", roles=f"2000:{CREATOR}")
        made = creator.create_board("spring", "t.zip", packed(TRANSPOSE, "transpose/"), gpus=["H100", "B200"])
        assert (made.name, made.gpus) == ("spring", ("H100", "B200")) and "B200" in made.warnings[-1]
        board = api.store.boards.find("spring")
        assert board is not None and board.created_by == ada.id and board.problem_name == "spring"
        flat = creator.create_board("one", "reference.py", ONE_FILE, gpus=["H100"], deadline="2999-01-01", zone="UTC")
        assert flat.name == "one"
        with pytest.raises(Unauthenticated, match="may not create boards"):
            bot.acting_for("discord:501").create_board("two", "reference.py", ONE_FILE, gpus=["H100"])
        for wrong, said in (
            ({"name": "spring", "gpus": ["H100"]}, "already"),
            ({"name": "admin", "gpus": ["H100"]}, "can't be a board's name"),
            ({"name": "x"}, "no GPU type"),
            ({"name": "x", "gpus": ["H100"], "deadline": "2001-01-01"}, "has passed"),
            ({"name": "x", "gpus": ["H100"], "deadline": "soon"}, "soon"),
        ):
            with pytest.raises(Invalid, match=said):
                creator.create_board(file_name="reference.py", data=ONE_FILE, **wrong)
        for call in (
            lambda: creator.delete_board("spring"),
            lambda: creator.places("spring"),
            lambda: creator.verify("spring"),
            lambda: creator.rejudge_preview("spring"),
            lambda: creator.people("a"),
            creator.resync,
        ):
            with pytest.raises(Unauthenticated, match="isn't a host"):
                call()
        assert api.store.boards.find("spring") is not None


def test_what_hosts_ask_beside(api: ServedApi) -> None:
    with Client(api.url, admin=BOT_TOKEN) as bot:
        for account, name in (("501", "ada"), ("502", "adam"), ("503", "eve")):
            bot.discord_user(account, name)
        host = bot.acting_for("discord:503", roles=f"2000:{HOST}")
        assert [one.name for one in host.people("AD")] == ["ada", "adam"] and not host.people("%")
        host.resync()
        assert host.audit()[0]["act"] == "resync"
        api.store.boards.add("spring", loading.load(TRANSPOSE), gpus=["H100"], confirm=False, now=api.now)
        ranks(api, "bob", 2e-3, "spring")
        with pytest.raises(Invalid, match="no matching runs"):
            host.rejudge_preview("transpose", ["mode=leaderboard"])
        with pytest.raises(Invalid, match="isn't a valid filter"):
            host.rejudge_preview("transpose", ["colour=red"])
        assert host.places("transpose") == []
        for shape, method, path, body in (
            (May, "GET", "/bot/may", None),
            (Fine, "POST", "/bot/resync", None),
            (People, "GET", "/admin/people", None),
            (Places, "GET", "/admin/leaderboards/spring/export", None),
            (Verifies, "POST", "/admin/leaderboards/spring/verify", {"mode": "benchmark"}),
            (Verification, "GET", "/bot/verifications/2", None),
            (RejudgingTold, "POST", "/admin/leaderboards/spring/rejudge-preview", {}),
        ):
            shape.model_validate(host._told(method, path, json=body))
        host.set_ban("ada", True, "shared an account")
        assert api.store.people.find("ada").ban_reason == "shared an account"  # type: ignore[union-attr]
        ordered = host.verify("transpose", ["h100"])
        assert (ordered.gpus, ordered.left_out) == (("H100",), ())
        assert ordered.places == ("local",)
        told = bot.verification(ordered.submission_id)
        assert [one["place"] for one in told["runs"]] == ["local"]
        assert (told["done"], [one["state"] for one in told["runs"]]) == (False, ["queued"])
        view = api.store.submissions.get(ordered.submission_id)  # type: ignore[arg-type]
        assert (view.person, view.by_staff, view.mode) == ("house", True, "test")
        other = bot.acting_for("discord:503").submit("transpose", "H100", "test", "k.py", GOOD)
        with pytest.raises(NotFound):
            bot.verification(other.submission_id)
        with Client(api.url) as stranger, pytest.raises(Unauthenticated):
            stranger.verification(ordered.submission_id)


def test_no_host_by_a_role_gives_a_token_to_somebody_else(api: ServedApi) -> None:
    with Client(api.url, admin=BOT_TOKEN) as bot, Client(api.url) as device:
        bot.discord_user("501", "ada")
        boss = api.store.people.add("boss", role="owner")
        host, pending = bot.acting_for("discord:501", roles=f"2000:{HOST}"), device.pending()
        with pytest.raises(KbslurmError, match="another person"):
            host._told("POST", "/admin/link", json={"token": pending, "person": f"person:{boss.id}"})
        with Client(api.url, token=pending) as theirs, pytest.raises(Unauthenticated):
            theirs.me()


def test_no_hosts_token_is_linked_by_the_bots_word(api: ServedApi) -> None:
    boss = api.store.people.add("boss", role="owner")
    api.store.people.link_account(boss.id, "discord", "77")
    with Client(api.url, admin=BOT_TOKEN) as bot, Client(api.url) as device:
        pending = device.pending()
        with pytest.raises(Refused, match="can't be linked over Discord"):
            bot.acting_for("discord:77").link_mine(pending)
        with Client(api.url, token=pending) as theirs, pytest.raises(Unauthenticated):
            theirs.me()
        # Who is a host by a role alone has a participant's token, as ever
        bot.discord_user("501", "ada")
        assert bot.acting_for("discord:501", roles=f"2000:{HOST}").link_mine(pending).name == "ada"


def zipped(*rows: tuple[str, bytes, int]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in rows:
            row = zipfile.ZipInfo(name)
            row.external_attr, row.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(row, data)
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("p.zip", b"PK no zip", "can't be read"),
        ("p.zip", zipped(("../task.yml", b"", 0)), "points outside"),
        ("p.zip", zipped(("/task.yml", b"", 0)), "points outside"),
        ("p.zip", zipped(("task.yml", b"/etc/passwd", stat.S_IFLNK | 0o777)), "isn't a regular file"),
        ("p.zip", zipped(("big", b"\0" * (upload.UNPACKED_CAP + 1), 0)), "unpacks to"),
        ("p.zip", zipped(*((f"f{n}", b"", 0) for n in range(501))), "501 files"),
        ("p.zip", zipped(("readme", b"x", 0)), "no task.yml"),
        ("p.zip", zipped(("a/task.yml", b"", 0), ("b/task.yml", b"", 0)), "several problems"),
        ("p.zip", zipped(("task.yml", b"files: [{name: a.py, source: ../../../etc/passwd}]\nlang: py\n", 0)), "passwd"),
        ("p.zip", zipped(("a", b"", 0), ("a/task.yml", b"", 0)), "can't be unpacked"),
        ("task.yml", b"lang: py\n", "files"),
        ("reference.py", b"def nothing(): pass\n", "generate_input"),
        ("p.tar", b"x", "neither"),
    ],
)
def test_no_upload_leads_anywhere_else(name: str, data: bytes, said: str) -> None:
    with pytest.raises(KbslurmError, match=said) as met:
        upload.loaded(name, data, name="x")
    assert isinstance(met.value, Invalid | NotFound | TooLarge)
    assert "kb-problem-" not in met.value.message and "root:" not in met.value.message


def test_a_zip_that_lies_about_its_size_takes_no_more_memory_than_it_says() -> None:
    honest = zipped(("task.yml", b"\0" * 64_000_000, 0))
    lying = honest.replace((64_000_000).to_bytes(4, "little"), (100).to_bytes(4, "little"))
    assert lying != honest
    tracemalloc.start()
    try:
        with pytest.raises(Invalid):
            upload.loaded("p.zip", lying, name="x")
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_packed_in_a_way_that_cant_be_unpacked_in_steps_isnt_taken(way: int) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", way) as archive:
        archive.writestr("task.yml", b"lang: py\n")
    with pytest.raises(Invalid, match="unsupported compression"):
        upload.loaded("p.zip", made.getvalue(), name="x")


ELSEWHERE = "[github]\nrepository = 'house/runs'\ngpus.H100 = ['gpu']\n"


def test_who_chooses_a_place_and_a_canary_for_each(database_url: str, tmp_path: Path) -> None:
    with (
        served(database_url, tmp_path, bot=BOT_TOKEN, toml=TOML + ELSEWHERE) as api,
        Client(api.url, admin=BOT_TOKEN) as bot,
        Client(api.url, admin=ADMIN) as hosts,
    ):
        person = bot.discord_user("501", "ada")
        ada, host = bot.acting_for("discord:501"), bot.acting_for("discord:501", roles=f"2000:{HOST}")

        def pinned(number: int) -> set[str | None]:
            rows = api.store._all("SELECT pinned FROM run WHERE submission_id = %(n)s", {"n": number})
            return {row["pinned"] for row in rows}

        def tried(by: Client, on: str | None, mode: str = "test", gpu: str = "H100") -> int:
            return by.submit_to_many("transpose", [gpu], mode, "k.py", GOOD, on=on).submission_id

        assert pinned(tried(ada, None)) == {None} and pinned(tried(ada, "LOCAL")) == {"local"}
        assert {name: set(has) for name, has in ada.places_offered().items()} == {"local": {"A100", "H100"}}
        assert set(host.places_offered()) == {"local", "github"}
        with pytest.raises(Invalid, match="can't choose its place"):
            tried(ada, "local", "leaderboard")
        for by in (ada, host):  # a role of Discord's is nothing that runs know of
            with pytest.raises(Refused, match="only hosts can choose github"):
                tried(by, "github")
        with pytest.raises(NotFound, match="no place 'nowhere'") as unknown:
            tried(ada, "nowhere")
        assert "github" not in str(unknown.value)
        api.store.people.set_role(PersonId(person.id), "staff", by="host", now=api.now)
        assert pinned(tried(ada, "github")) == {"github"}
        with pytest.raises(Invalid, match="github has no A100") as other:
            tried(ada, "github", gpu="A100")
        assert "Places with A100: local" in str(other.value)

        every = hosts.verify("transpose")
        assert every.places == ("local", "github")
        rows = bot.verification(every.submission_id)["runs"]
        assert [(row["place"], row["gpu"]) for row in rows] == [
            *(("local", gpu) for gpu in every.gpus),
            ("github", "H100"),
        ]
        one = hosts.verify("transpose", on="github")
        assert [row["place"] for row in bot.verification(one.submission_id)["runs"]] == ["github"]
        with pytest.raises(Invalid, match="github has none of A100"):
            hosts.verify("transpose", ["A100"], on="github")
        with pytest.raises(NotFound, match="no place 'x'"):
            hosts.verify("transpose", on="x")
