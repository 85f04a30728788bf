"""Late submissions, extensions, and frozen standings, in the real service: who may submit, what ranks, who sees it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.client.http import Client
from kbslurm.domain.access import StandingsShown
from kbslurm.domain.pseudonyms import MOST_RENAMED
from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.errors import DeadlinePassed, Invalid, NotFound, QuotaSpent, Refused
from kbslurm.flow.submit import accept
from kbslurm_bot import state
from kbslurm_bot.announcements import Announcer
from kbslurm_bot.cards import Shown, is_kept_back, message
from kbslurm_bot.service import Service
from tests.command_line import CommandLine
from tests.flow.stage import START, HandClock
from tests.flow.test_bot_announce import Pinned
from tests.flow.test_pages import browsing, csrf, judged
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served

ROOT = Path(__file__).resolve().parents[2]
BOT = "bot-token-for-times"
NAMED = ("adelaide", "beatrice", "cynthia")
HIDDEN_S = 0.123456  # the time that a freeze hides


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock(), bot=BOT) as built:
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


def clock(api: ServedApi) -> HandClock:
    assert isinstance(api.context.clock, HandClock)
    return api.context.clock


def due(api: ServedApi, **later: float) -> None:
    api.store.boards.set_deadline("transpose", api.now + timedelta(**later), now=api.now)


def names(api: ServedApi, *, live: bool = False) -> list[str]:
    return [one.person for one in api.store.standings.best("transpose", "H100", live=live)]


def asking(api: ServedApi, name: str) -> dict[str, str]:
    """The headers with which popcorn-cli asks for this person."""
    return {"X-Popcorn-Cli-Id": str(api.client(name).cli_id)}


def submit(api: ServedApi, by: PersonId) -> SubmissionId:
    return accept(api.store.intake, by, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id


# ------------------------------------------------------------------------------------------------------ late


def test_late_submissions_are_taken_until_then_told_so_and_never_rank(api: ServedApi, host: Client) -> None:
    due(api, hours=1)
    judged(api, "ada", 0.5)
    told = host.set_late(
        "transpose", until=(START + timedelta(hours=4)).isoformat(), percent=10, per="hour", grace="15m"
    )
    assert told["late"]["in_words"] == (
        "late submissions until 2026-05-01 16:00 UTC, the first 15 min cost nothing,"
        " 10 % of the points lost per hour begun"
    )
    assert host.times("transpose")["late"] == told["late"]
    clock(api).go(2 * 3600)
    late = judged(api, "bea", 0.2)
    assert names(api) == names(api, live=True) == ["ada"], "late ones never rank, whoever looks"
    bea = api.client("bea")
    with Client(api.url, token=bea.cli_id) as client:
        full = client.full_submission(late)["submission"]
        verdict = full["runs"][0]["verdict"]
        assert full["late_s"] > 3600
        assert (verdict["ranked"], verdict["score_s"]) == (False, pytest.approx(0.2))
        assert re.fullmatch(r"late by 1 h \d+ min: it counts for grades, not in the standings", verdict["not_ranked"])
        assert client.board_rows()[0]["is_open"], "it still takes some"
        assert "The deadline has passed" in client.board_rows()[0]["remarks"][0]
    clock(api).at = START + timedelta(hours=4)
    submit(api, api.store.people.ensure("bea").id)
    clock(api).go(1)
    with pytest.raises(DeadlinePassed) as refused:
        submit(api, api.store.people.ensure("bea").id)
    assert refused.value.closed_at == START + timedelta(hours=4)


def test_whoever_got_an_extension_afterwards_was_not_late(api: ServedApi, host: Client) -> None:
    due(api, hours=1)
    host.set_late("transpose", until="2026-05-02")
    clock(api).go(2 * 3600)
    number = judged(api, "ada", 0.2)
    assert names(api) == []
    with browsing(api) as anybody:
        assert "Nobody has ranked" in anybody.get("/board/transpose/H100").text
        host.extend("transpose", "person:ada", (api.now + timedelta(hours=1)).isoformat())
        assert ">ada<" in anybody.get("/board/transpose/H100").text, "also where it is remembered"
    assert names(api) == ["ada"]
    assert api.store.submissions.get(SubmissionId(number)).late_s == 0
    host.extend("transpose", "person:ada", None)
    assert names(api) == []


def test_an_extension_of_a_section_is_for_those_in_it(api: ServedApi, host: Client, database_url: str) -> None:
    due(api, hours=1)
    people = {name: api.store.people.ensure(name).id for name in ("ada", "bea", "cyd")}
    with api.store._pool.statement() as connection:
        connection.execute(b"UPDATE leaderboard SET course = 'gpu'")
        for name, section in (("ada", "Monday A"), ("bea", "Tuesday")):
            connection.execute(
                b"INSERT INTO roster (course, person_id, section, added_at) VALUES ('gpu', %s, %s, now())",
                (people[name], section),
            )
    told = host.extend("transpose", "section:monday a", (START + timedelta(hours=3)).isoformat())
    assert (told["person"], told["section"]) == (None, "Monday A")
    assert host.times("transpose")["extensions"] == [
        {"person": None, "section": "monday a", "until": "2026-05-01T15:00:00+00:00"}
    ]
    clock(api).go(2 * 3600)
    judged(api, "ada", 0.4)
    assert names(api) == ["ada"], "by their own deadline it is in time"
    for other in ("bea", "cyd"):
        with pytest.raises(DeadlinePassed):
            submit(api, people[other])
    with pytest.raises(NotFound, match="no section of board transpose 'friday'") as refused:
        host.extend("transpose", "section:friday", "2026-06-01")
    assert "Monday A, Tuesday" in str(refused.value)
    host.extend("transpose", "section:Monday A", None)
    assert names(api) == [] and host.times("transpose")["extensions"] == []


def test_where_the_latest_counts_a_late_one_does_not_take_its_place(api: ServedApi, host: Client) -> None:
    due(api, hours=1)
    with api.store._pool.statement() as connection:
        connection.execute(b"UPDATE leaderboard SET ranking = 'last'")
    first = judged(api, "ada", 0.5)
    host.set_late("transpose", until="2026-05-02")
    clock(api).go(2 * 3600)
    judged(api, "ada", 0.2)
    assert [one.submission_id for one in api.store.standings.best("transpose", "H100")] == [first]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"until": "2026-04-01"}, "has passed already"),
        ({"until": "2026-05-01 12:30"}, "before the deadline"),
        ({"until": "soon"}, "isn't a valid deadline"),
        ({"until": "2026-05-03", "grace": "a while"}, "isn't a length of time"),
        ({"percent": 5}, "takes no late submissions"),
    ],
)
def test_a_late_policy_that_makes_no_sense_changes_nothing(
    api: ServedApi, host: Client, wanted: dict[str, Any], words: str
) -> None:
    due(api, hours=1)
    before = host.times("transpose")
    with pytest.raises(Invalid, match=words):
        host.set_late("transpose", **wanted)
    assert host.times("transpose") == before


# -------------------------------------------------------------------------------------------------- practice


def test_practice_after_the_end_is_judged_and_shown_apart_and_counts_nowhere(
    api: ServedApi, host: Client, tmp_path: Path
) -> None:
    due(api, hours=1)
    judged(api, "ada", 0.5)
    host.set_late("transpose", until=(START + timedelta(hours=2)).isoformat())
    clock(api).go(3 * 3600)
    bea = api.store.people.ensure("bea")
    with pytest.raises(DeadlinePassed):
        submit(api, bea.id)
    assert host.edit_board("transpose", practice=True)["changed"] == ["practice"]
    number = judged(api, "bea", 0.2)
    assert names(api) == names(api, live=True) == ["ada"]
    held = api.store.boards.get("transpose")
    handed = api.store.gradebook.handed(held, "H100", None)
    assert ([one.person for one in handed], [one.name for one in api.store.gradebook.students(held)]) == (
        ["ada"],
        ["ada"],
    )
    with Client(api.url, token=api.client("bea").cli_id) as client:
        full = client.full_submission(number)["submission"]
        verdict = full["runs"][0]["verdict"]
        assert (full["practice"], verdict["ranked"], verdict["score_s"]) == (True, False, pytest.approx(0.2))
        assert verdict["not_ranked"].startswith("practice: it came after the end")
        assert client.board_rows()[0]["is_open"]
        assert [one.person for one in client.ranking("transpose", "H100")] == ["ada"]
        assert [one.person for one in client.ranking("transpose", "H100", practice=True)] == ["bea"]
    local = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})
    shown = local("board", "show", "transpose", "--practice", "--json").json()["standings"]["H100"]
    assert [row["entry"]["person"] for row in shown] == ["bea"]
    with browsing(api) as anybody:
        page = anybody.get("/board/transpose/H100").text
    standings, _, practice = page.partition("Practice after the end")
    assert ">ada<" in standings and ">bea<" not in standings and ">bea<" in practice
    assert "what is submitted now is practice" in page

    # also once the board takes none any more, or takes late ones for longer
    host.edit_board("transpose", practice=False)
    host.set_late("transpose", until=(START + timedelta(hours=9)).isoformat())
    assert [one.person for one in api.store.gradebook.handed(held, "H100", None)] == ["ada"] and names(api) == ["ada"]
    # as anonymous as the standings, and as hidden
    host.edit_board("transpose", names="anonymous", practice=True)
    with Client(api.url) as anyone:
        (row,) = anyone.ranking("transpose", "H100", practice=True)
        assert row.person == api.store.boards.disguise(api.store.boards.get("transpose")).name_of(bea.id, None)
        host.edit_board("transpose", standings="hidden")
        assert anyone.ranking("transpose", "H100", practice=True) == []
    # whoever was given an extension afterwards didn't practise
    host.extend("transpose", "person:bea", (api.now + timedelta(hours=1)).isoformat())
    assert names(api, live=True) == ["bea", "ada"]
    assert [one.person for one in api.store.gradebook.handed(held, "H100", None)] == ["ada", "bea"]
    host.close_board("transpose")
    with pytest.raises(Refused, match="is closed"):
        submit(api, api.store.people.ensure("cyd").id)


# ---------------------------------------------------------------------------------------------------- freeze


def outlets(api: ServedApi, memory: Path) -> dict[str, Callable[[], str]]:
    """Everything that tells people about one another's results, as text; `test_no_outlet_is_missing` keeps it whole."""
    database = CommandLine(cwd=memory, env={"DATABASE_URL": api.store.url})
    token = api.store.tokens.issue(api.store.people.ensure("eve").id, now=api.now)
    over_http = CommandLine(cwd=memory, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token})

    def page(path: str, who: str | None = None) -> str:
        with browsing(api, who) as browser:
            return browser.get(path).text

    def stream() -> str:
        with browsing(api) as browser, browser.stream("GET", "/live/transpose?gpu=H100&seen=x") as answer:
            found = []
            for line in answer.iter_lines():
                found.append(line)
                if line.startswith("id: "):
                    return "\n".join(found)
        raise AssertionError("nothing came")

    def announced() -> str:
        pinned = Pinned()
        with closing(Service(api.url, BOT)) as service, state.opened(memory / "bot.sqlite") as kept:
            asyncio.run(Announcer(kept, service, pinned, 3000, lambda: api.now).look())
        return "\n".join(pinned.texts())

    def command(line: CommandLine, *words: str) -> str:
        told = line(*words)
        assert told.code == 0, told.err
        return told.out

    def popcorn(path: str) -> str:
        return httpx.get(f"{api.url}{path}", headers=asking(api, "eve"), timeout=60).text

    return {
        "board page": lambda: page("/board/transpose/H100"),
        "board page, signed in": lambda: page("/board/transpose/H100", "eve"),
        "board page's stream": stream,
        "start page": lambda: page("/"),
        "start page, signed in": lambda: page("/", "eve"),
        "hall": lambda: page("/board/transpose/H100/hall"),
        "problem page": lambda: page("/problem/transpose"),
        "places as JSON": lambda: page("/board/transpose/H100.json"),
        "places as CSV": lambda: page("/board/transpose/H100.csv"),
        "records as JSON": lambda: page("/board/transpose/H100/records.json"),
        "competitions as CSV": lambda: page("/boards.csv"),
        "frame for other sites": lambda: page("/embed/board/transpose/H100"),
        "GPU types compared": lambda: page("/compare?board=transpose&gpu=H100&other=A100", "eve"),
        "a person's page": lambda: page(f"/person/{api.store.people.ensure('bea').id}", "eve"),
        "places by name": lambda: page("/board/transpose/H100?q=e&sort=newest", "eve"),
        "popcorn's ranking": lambda: popcorn("/submissions/transpose/H100"),
        "popcorn's final": lambda: popcorn("/final/transpose/H100"),
        "popcorn's boards": lambda: popcorn("/leaderboards"),
        "contest feed": lambda: popcorn("/contests/transpose/event-feed?stream=false"),
        "contest's teams": lambda: popcorn("/contests/transpose/teams"),
        "contest's judgements": lambda: popcorn("/contests/transpose/judgements"),
        "board show, database": lambda: command(database, "board", "show", "transpose"),
        "board show --json, database": lambda: command(database, "board", "show", "transpose", "--json"),
        "board show, HTTP": lambda: command(over_http, "board", "show", "transpose"),
        "board list": lambda: command(over_http, "board", "list", "--json"),
        "CSV": lambda: command(database, "export", "transpose"),
        "the bot's announcements": announced,
    }


def shows_hidden(text: str) -> bool:
    """Whether the hidden time or its author is in it."""
    return "123." in text or "0.123" in text or "zoe" in text


def test_a_freeze_holds_at_every_outlet_and_ends_at_every_outlet(api: ServedApi, host: Client, tmp_path: Path) -> None:
    judged(api, "ada", 0.5)
    judged(api, "bea", 0.6)
    found = outlets(api, tmp_path)
    found["the bot's announcements"]()  # what was there before it isn't news
    clock(api).go(5)
    told = host.freeze("transpose")
    assert told["is_frozen"] and told["frozen_at"] == api.now.isoformat()
    clock(api).go(5)
    number = judged(api, "zoe", HIDDEN_S, 0.0001)
    mine = judged(api, "bea", HIDDEN_S * 1.0001, 0.0001)
    for name, look in found.items():
        assert not shows_hidden(look()), name
    assert names(api) == ["ada", "bea"] and names(api, live=True) == ["zoe", "bea", "ada"]
    frozen = found["board page"]()
    assert "The standings are frozen: they show what was submitted until" in frozen
    assert "frozen" in found["board show, HTTP"]()

    # one's own, always
    with browsing(api, "zoe") as zoe:
        assert "123." in zoe.get(f"/s/{number}").text
    told = httpx.get(f"{api.url}/user/submissions/{number}", headers=asking(api, "zoe"), timeout=60).json()
    scores = [run["score"] for run in told["runs"] if run["score"] is not None]
    assert [float(one) for one in scores] == [pytest.approx(HIDDEN_S)], told["runs"]
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url, "KBSLURM_PERSON": "bea"})
    assert "123.4" in kbslurm("history").out and "123.4" in kbslurm("watch", str(mine)).out

    # what the bot puts into a channel is for everybody
    with Client(api.url, token=api.client("zoe").cli_id) as client:
        full = client.full_submission(number)
    assert is_kept_back(full)
    card = json.dumps(message(Shown(full=full, owner=1, contexts={})), ensure_ascii=False)
    assert "123" not in card and "the standings are frozen" in card

    # hosts, where they ask for it
    with browsing(api, "hana", "staff") as hana:
        assert "zoe" in hana.get("/staff/board/transpose").text
    assert "zoe" in CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})("export", "transpose", "--live").out

    host.unfreeze("transpose")
    for name in (
        "board page",
        "board page's stream",
        "popcorn's ranking",
        "contest feed",
        "board show, database",
        "CSV",
    ):
        assert shows_hidden(found[name]()), name
    assert "zoe leads transpose" in found["the bot's announcements"]()


def test_no_outlet_of_an_anonymous_board_tells_who_is_who(api: ServedApi, host: Client, tmp_path: Path) -> None:
    """Nor anything by which somebody could be found: numbers, file names, times of day."""
    found = outlets(api, tmp_path)
    found["the bot's announcements"]()
    told = host.edit_board("transpose", names="anonymous")
    assert told["changed"] == ["names"]
    numbers = [judged(api, name, score) for name, score in zip(NAMED, (0.5, 0.6, 0.4), strict=True)]
    people = [api.store.people.ensure(name).id for name in NAMED]
    secret = api.store.boards.disguise(api.store.boards.get("transpose"))
    shown = [str(secret.name_of(one, None)) for one in people]
    entries = api.store.standings.best("transpose", "H100", live=True)
    assert [one.person for one in entries] == ["cynthia", "adelaide", "beatrice"], "hosts see people"
    looked = {name: look() for name, look in found.items()}
    for name, text in looked.items():
        for word in ("adelaide", "beatrice", "cynthia", "k.py", secret.key):
            assert word not in text, (name, word)
        for entry in entries:
            for number in (entry.submission_id, entry.run_id, entry.person_id):
                assert not re.search(rf"(user_id|person_id|submission(_id)?|run(_id)?)\W+{number}\b", text), name
            assert entry.at.strftime("%H:%M") not in text or entry.at.strftime("%H:%M") == "12:00", name
    for name in ("board page", "board page's stream", "popcorn's ranking", "board show, database", "board show, HTTP"):
        assert all(one in found[name]() for one in shown), name
    assert all(one in found["CSV"]() for one in shown)
    assert f"{shown[2]} leads transpose" in looked["the bot's announcements"]
    assert "People have pseudonyms here" in found["board page"]()

    # stable, one's own is told, and the one of another board is another
    again = api.store.boards.disguise(api.store.boards.get("transpose"))
    assert [again.name_of(one, None) for one in people] == shown and len(set(shown)) == 3
    with Client(api.url, token=api.client("adelaide").cli_id) as client:
        (mine,) = client.standing("transpose")
        assert (mine["rank"], mine["of"], mine["shown_as"]) == (2, 3, shown[0])
        full = client.full_submission(numbers[0])
    assert is_kept_back(full), "a card beside the author's name mustn't say how fast it is"
    card = json.dumps(message(Shown(full=full, owner=1, contexts={})), ensure_ascii=False)
    assert "500" not in card and "0.5" not in card
    assert "people are shown under other names on this board" in card and "frozen" not in card
    with browsing(api, "adelaide") as ada:
        assert f'You are 2 of 3 on H100, as <span class="name">{shown[0]}</span>' in ada.get("/problem/transpose").text

    # how often somebody has submitted would tell whose the new place is
    path, ada_id = f"{api.url}/submission_count/transpose/H100", {"user_id": people[0]}
    assert httpx.get(path, params=ada_id, headers=asking(api, "eve"), timeout=60).status_code == 403
    assert httpx.get(path, params=ada_id, timeout=60).status_code == 403
    assert httpx.get(path, params=ada_id, headers=asking(api, "adelaide"), timeout=60).json() == {"count": 1}
    assert httpx.get(path, timeout=60).json()["count"] == 3

    # hosts: the mapping in both directions, with a line in the audit log
    local = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})
    table = local("board", "names", "transpose", "--format", "csv").out.splitlines()
    assert table[0] == "shown_as,person,person_id,team"
    assert sorted(table[1:]) == sorted(f"{s},{n},{p}," for s, n, p in zip(shown, NAMED, people, strict=True))
    for whom in (shown[1], "beatrice"):
        (row,) = json.loads(local("board", "names", "transpose", "--of", whom, "--json").out)["names"]
        assert (row["shown_as"], row["person"]) == (shown[1], "beatrice")
    assert api.store.events.audit_log(limit=1)[0].kind == "staff.names"
    assert "cynthia" in local("export", "transpose", "--live").out
    with browsing(api, "hana", "staff") as hana:
        page = hana.get("/staff/board/transpose").text
        assert shown[0] in page and "adelaide" in page
    host.edit_board("transpose", names="real")
    assert "adelaide" in found["board page"]() and "adelaide" in found["popcorn's ranking"]()


def test_an_anonymous_boards_final_and_fixed_standings_name_nobody(api: ServedApi, host: Client) -> None:
    for name, score in (("adelaide", 0.5), ("beatrice", 0.6)):
        judged(api, name, score)
    host.edit_board("transpose", names="anonymous")
    ordered = api.store.finals.order("transpose", "H100", 2, by="host", now=api.now)
    assert [one.person for one in ordered.rivals] == ["adelaide", "beatrice"], "hosts see people"
    real = [one.submission_id for one in ordered.rivals]
    with api.store._pool.statement() as connection:
        connection.execute(b"UPDATE final SET state = 'applied', decided_at = now()")
    shown = api.store.finals.applied("transpose", "H100")
    assert shown is not None
    disguise = api.store.boards.disguise(api.store.boards.get("transpose"))
    people = [api.store.people.ensure(name).id for name in ("adelaide", "beatrice")]
    assert [one.person for one in shown.rivals] == [disguise.name_of(one, None) for one in people]
    assert not {one.submission_id for one in shown.rivals} & set(real)
    text = httpx.get(f"{api.url}/final/transpose/H100", timeout=60).text
    assert "adelaide" not in text and "beatrice" not in text
    host.edit_board("transpose", standings="hidden")
    assert api.store.finals.applied("transpose", "H100") is None
    assert httpx.get(f"{api.url}/final/transpose/H100", timeout=60).status_code == 404


@pytest.mark.parametrize("standings", ["own", "hidden"])
def test_hidden_standings_show_at_no_outlet_until_a_host_shows_them(
    api: ServedApi, host: Client, tmp_path: Path, standings: StandingsShown
) -> None:
    found = outlets(api, tmp_path)
    found["the bot's announcements"]()
    host.edit_board("transpose", standings=standings)
    judged(api, "adelaide", 0.5)
    number = judged(api, "zoe", HIDDEN_S, 0.0001)
    before = found["board page's stream"]().split("\n", 1)[1]  # after how soon to come again, which is random
    judged(api, "beatrice", 0.6)
    for name, look in found.items():
        text = look()
        assert not shows_hidden(text), name
        assert "adelaide" not in text and "beatrice" not in text, name
    assert found["board page's stream"]().split("\n", 1)[1] == before, "not even that somebody was faster"
    assert "The standings are hidden until the hosts show them" in found["board page"]()
    assert "nobody has ranked" not in found["board show, HTTP"]()
    with Client(api.url, token=api.client("zoe").cli_id) as client:
        ranks = [(one["rank"], one["of"]) for one in client.standing("transpose")]
        full = client.full_submission(number)
    assert ranks == ([(1, 3)] if standings == "own" else [])
    assert is_kept_back(full), "nor in a channel"
    card = json.dumps(message(Shown(full=full, owner=1, contexts={})), ensure_ascii=False)
    assert "the standings of this board aren't shown to everybody" in card and "frozen" not in card
    with browsing(api, "zoe") as zoe:
        assert "123." in zoe.get(f"/s/{number}").text, "one's own verdicts, always"
        assert ("You are 1 of 3" in zoe.get("/problem/transpose").text) is (standings == "own")
    zoes = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url, "KBSLURM_PERSON": "zoe"})
    assert ("you are 1 of 3" in zoes("board", "show", "transpose").out) is (standings == "own")
    assert len(json.loads(zoes("board", "show", "transpose", "--json").out)["own"]) == len(ranks)
    with browsing(api, "hana", "staff") as hana:
        assert "zoe" in hana.get("/staff/board/transpose").text
    assert "zoe" in CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})("export", "transpose", "--live").out

    host.edit_board("transpose", standings="shown")
    for name in ("board page", "board page's stream", "popcorn's ranking", "board show, database", "CSV"):
        assert shows_hidden(found[name]()), name
    assert "zoe leads transpose" in found["the bot's announcements"]()


# ------------------------------------------------------------------------------------------------- nicknames


def test_people_choose_nicknames_that_are_nobody_elses(api: ServedApi, host: Client, tmp_path: Path) -> None:
    ada, number = api.client("ada"), judged(api, "ada", 0.5)
    judged(api, "bea", 0.6)
    api.store.people.ensure("Alan Turing")
    with Client(api.url, token=ada.cli_id) as client, Client(api.url, token=api.client("bea").cli_id) as other:
        with pytest.raises(Invalid, match="has no nicknames"):
            client.set_nickname("transpose", "Warp Speed")
        host.edit_board("transpose", names="nicknames")
        assert client.set_nickname("transpose", " Warp \u3164Speed ") == "Warp Speed"
        assert names(api) == ["Warp Speed", "bea"] and names(api, live=True) == ["ada", "bea"]
        for taken in ("warp speed", "WARP-SPEED", "wаrp speed", "AIan Turing", "alán  turing", "ada"):
            with pytest.raises(Invalid, match="somebody's name here, or too like one"):
                other.set_nickname("transpose", taken)
        for bad in ("", "person:7", "1234", "x" * 65, "\u202eeve", "Warp\u200bSpeed"):
            with pytest.raises(Invalid):
                other.set_nickname("transpose", bad)
        assert client.set_nickname("transpose", "Ada!") == "Ada!", "one's own"
    with browsing(api) as anybody:
        page = anybody.get("/board/transpose/H100").text
        row = httpx.get(f"{api.url}/submissions/transpose/H100", timeout=60).json()[0]
    assert ">Ada!<" in page and ">bea<" in page and ">ada<" not in page
    assert (row["user_name"], row["submission_name"]) == ("Ada!", "") and row["submission_id"] != number
    with browsing(api, "ada") as browser:
        told = {"csrf": csrf(browser.get("/problem/transpose").text), "nickname": "Countess"}
        assert browser.post("/problem/transpose/nickname", data=told).status_code == 303
        assert names(api) == ["Countess", "bea"]
        assert browser.post("/problem/transpose/nickname", data={**told, "nickname": "bea"}).status_code == 400
        assert browser.post("/problem/transpose/nickname", data={**told, "nickname": ""}).status_code == 303
    assert names(api) == ["ada", "bea"]
    adas = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url, "KBSLURM_PERSON": "ada"})
    assert adas("nickname", "transpose", "Countess").out == "transpose: others see you as Countess\n"
    assert json.loads(adas("nickname", "transpose", "--none", "--json").out) == {"board": "transpose", "nickname": None}
    assert adas("nickname", "transpose").code == 2
    adas("nickname", "transpose", "Countess")
    api.store.erasing.erase(PersonId(api.store.people.ensure("ada").id), by="host", now=api.now)
    assert names(api)[0].startswith("deleted-"), "a nickname is personal, too"


def test_nicknames_change_a_few_times_an_hour_and_readers_reread_no_standings(
    api: ServedApi, host: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(api, "ada", 0.5)
    judged(api, "bea", 0.6)
    host.edit_board("transpose", names="nicknames")

    def shown() -> list[str]:
        rows = httpx.get(f"{api.url}/submissions/transpose/H100", timeout=60).json()
        return [row["user_name"] for row in rows]

    assert shown() == ["ada", "bea"]
    with browsing(api, "ada") as browser:
        told = {"csrf": csrf(browser.get("/problem/transpose").text), "nickname": "Flash y"}
        monkeypatch.setattr(type(api.store.standings), "best", None)  # whoever rereads them all fails
        _rename(api, shown, lambda: browser.post("/problem/transpose/nickname", data=told).status_code)


def _rename(api: ServedApi, shown: Callable[[], list[str]], by_page: Callable[[], int]) -> None:
    with Client(api.url, token=api.client("ada").cli_id) as ada, Client(api.url, token=api.client("bea").cli_id) as bea:
        last = api.store.events.last()
        for n in range(MOST_RENAMED):
            for _ in range(2):
                assert ada.set_nickname("transpose", f"Flash {'abcdefghijklmnop'[n]}") is not None
            clock(api).go(60)
        assert api.store.events.last() - last == MOST_RENAMED, "the same once more is no change"
        assert shown() == ["Flash j", "bea"]
        with pytest.raises(QuotaSpent, match=r"nickname changes per hour: 10 of 10 used.*Try again after 2026-05-01 1"):
            ada.set_nickname("transpose", "Flash z")
        assert by_page() == 429
        assert bea.set_nickname("transpose", "Slow") == "Slow" and shown() == ["Flash j", "Slow"]
        clock(api).go(3600 - 60 * MOST_RENAMED)
        assert ada.set_nickname("transpose", "Flash z") == "Flash z"
        assert ada.set_nickname("transpose", None) is None and shown() == ["ada", "Slow"], "at any time"
        with pytest.raises(QuotaSpent):
            ada.set_nickname("transpose", "Flash z")


def test_a_freeze_can_be_set_for_later(api: ServedApi, host: Client) -> None:
    at = START + timedelta(hours=1)
    told = host.freeze("transpose", at.isoformat())
    assert (told["is_frozen"], told["frozen_at"]) == (False, at.isoformat())
    judged(api, "ada", 0.5)
    assert names(api) == ["ada"]
    with browsing(api) as anybody:
        assert "will be frozen at 2026-05-01 13:00 UTC" in anybody.get("/board/transpose/H100").text
        clock(api).at = at + timedelta(seconds=1)
        judged(api, "bea", 0.4)
        assert names(api) == ["ada"]
        assert "The standings are frozen" in anybody.get("/board/transpose/H100").text
    with pytest.raises(Invalid, match="has a freeze already"):
        host.freeze("transpose")
    host.unfreeze("transpose")
    with pytest.raises(Invalid, match="isn't frozen"):
        host.unfreeze("transpose")


def test_where_the_latest_counts_a_freeze_keeps_the_one_from_before(api: ServedApi, host: Client) -> None:
    with api.store._pool.statement() as connection:
        connection.execute(b"UPDATE leaderboard SET ranking = 'last'")
    first = judged(api, "ada", 0.5)
    host.freeze("transpose")
    judged(api, "ada", 0.6)
    assert [one.submission_id for one in api.store.standings.best("transpose", "H100")] == [first]


def test_no_outlet_is_missing() -> None:
    """Whoever reads standings, records or finals is known here, and either shows the frozen ones or is for hosts."""
    known = {
        "kbslurm/api/contest_feed.py": "contest feed, teams and judgements",
        "kbslurm/api/routes/contests.py": "one submission or judgement of a contest",
        "kbslurm/api/hosting/boards.py": "the export, frozen unless --live",
        "kbslurm/api/pages/staff/board.py": "for staff",
        "kbslurm/api/pages/staff/reveal.py": "the reveal, for staff and graders",
        "kbslurm/api/pages/boards/board_list.py": "start page",
        "kbslurm/api/pages/boards/hall.py": "hall",
        "kbslurm/api/pages/people/comparing.py": "GPU types compared",
        "kbslurm/api/pages/people/person_pages.py": "a person's page",
        "kbslurm/api/pages/people/submissions.py": "the leader whose code is published, beside one's own cases",
        "kbslurm/api/pages/boards/sharing.py": "frame for other sites, and the picture",
        "kbslurm/api/pages/boards/table_files.py": "places, records and competitions as files",
        "kbslurm/api/pages/boards/drawn_boards.py": "board page and stream",
        "kbslurm/api/routes/popcorn.py": "ranking and final",
        "kbslurm/api/standings_cache.py": "what the pages and popcorn's calls read",
        "kbslurm/api/published_code.py": "whose code is published",
        "kbslurm/cli/competitor/board_show.py": "board show",
        "kbslurm/cli/operator/demo.py": "the demo's own board",
        "kbslurm/api/hosting/finalising.py": "what hosts fix",
        "kbslurm/store/finals.py": "who takes part in a final, for hosts",
        "kbslurm/api/hosting/measuring.py": "whom an open rejudge moves, and a board's finals, for hosts",
    }
    undisguised = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "kbslurm").rglob("*.py")
        if "undisguised=True" in file.read_text()
    }
    assert undisguised == {"kbslurm/api/standings_cache.py", "kbslurm/store/standings.py"}
    reads = re.compile(
        r"standings\.(scored|best|records|practice|scored_of|unfixed|rejudged|of|now|page|with_undisguised|around_freeze)\("
        r"|finals\.applied\(|contests\.(page|of|teams)\("
    )
    found = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "kbslurm").rglob("*.py")
        if reads.search(file.read_text()) and file.name != "standings.py"
    }
    assert found == set(known)
    live = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "kbslurm").rglob("*.py")
        if "live=True" in file.read_text() and file.parent.name != "cli"
    }
    assert live == {
        "kbslurm/api/pages/staff/board.py",
        "kbslurm/api/hosting/finalising.py",
        "kbslurm/api/hosting/measuring.py",
        "kbslurm/store/finals.py",
        "kbslurm/store/standings.py",
    }


# ------------------------------------------------------------------------------------------------- the pages


def test_hosts_do_the_same_on_the_staff_page(api: ServedApi) -> None:
    due(api, hours=1)
    api.store.people.ensure("ada")
    with browsing(api, "hana", "staff") as hana, browsing(api, "eve") as eve:
        path = "/staff/board/transpose"
        assert f'href="{path}"' in hana.get("/staff").text
        assert eve.get(path).status_code == 403
        key, hers = csrf(hana.get(path).text), csrf(eve.get("/me").text)

        def act(name: str, **form: str) -> int:
            return hana.post(f"{path}/{name}", data={"csrf": key, "x": "1", **form}).status_code

        assert eve.post(f"{path}/freeze", data={"csrf": hers}).status_code == 403
        assert act("dance") == 404
        assert act("late", until="2026-05-03", grace="15m", percent="10", per="day", slip_days="2") == 303
        assert act("late", until="2026-05-03", percent="ten") == 400
        assert act("extend", whom="ada", until="2026-05-02") == 303
        assert act("extend", whom="nobody", until="2026-05-02") == 404
        assert act("freeze") == 303 and act("freeze") == 400
        text = hana.get(path).text
        assert "2 slip days per person, 10 % of the points lost per day begun" in text
        assert '<th scope="row">ada</th><td>2026-05-02 23:59 UTC</td>' in text
        assert "The standings are frozen" in text
        assert act("unfreeze") == 303 and "The standings are frozen" not in hana.get(path).text
        acts = [event.kind for event in api.store.events.audit_log(limit=4)]
        assert acts == ["staff.unfreeze", "staff.freeze", "staff.extend", "staff.late"]
