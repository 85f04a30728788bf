"""What a board says beside its scores, to whom, and what it keeps back; finding places; what is compressed."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from kbslurm.api.pages.boards.drawn_boards import DrawnBoards
from kbslurm.api.pages.rendering import STATIC, asset, static_file
from kbslurm.client.http import Client
from kbslurm.domain.access import NamesShown, StandingsShown
from kbslurm.domain.board import Entry, Ranking
from kbslurm.domain.physics import Peak
from kbslurm.domain.run import SubmissionId
from kbslurm.domain.tracks import day_before
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.remove import remove
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.flow.test_pages import browsing
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served

PAGE = "/board/transpose/H100"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


def later(api: ServedApi, **by: float) -> None:
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.at += timedelta(**by)


def judged(
    api: ServedApi, by: str, score_s: float, *, file_name: str = "k.py", spread: float = 0.001, peak: Peak | None = None
) -> SubmissionId:
    store, now = api.store, api.now
    person = store.people.ensure(by)
    number = accept(store.intake, person.id, "transpose", file_name, GOOD, "leaderboard", ["H100"], now).submission_id
    attempt = claim(
        store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, store.attempts.open()), now
    )
    assert attempt is not None
    told = {"score_s": score_s, "interval_s": [score_s * (1 - spread), score_s * (1 + spread)]}
    score(store, attempt, sealed_report(store.attempts.work(attempt.id), **told), now, peak=peak)
    return number


class Row:
    """A row of the page's table, by its cells."""

    def __init__(self, html: str) -> None:
        self.html = html
        self.cells = [
            (classes.split(), " ".join(re.sub(r"<[^>]+>", " ", inner).split()))
            for _, classes, inner in re.findall(
                r'<(td|th)(?: scope="row")?(?: class="([^"]*)")?[^>]*>(.*?)</(?:td|th)>', html, re.DOTALL
            )
        ]

    def cell(self, name: str) -> str | None:
        return next((text for classes, text in self.cells if name in classes), None)

    @property
    def name(self) -> str:
        (found,) = re.findall(r'<th scope="row"><(?:a|span) class="name"[^>]*>([^<]*)</', self.html)
        return str(found)

    @property
    def badges(self) -> list[str]:
        return re.findall(r'<span class="badge[^>]*>([^<]+)</span>', self.html)

    @property
    def entries(self) -> str | None:
        found = [text for classes, text in self.cells if "more" in classes]
        return found[-1] if found else None


def rows(text: str) -> dict[str, Row]:
    """In order, by name."""
    found = [Row(html) for html in re.findall(r"<tr id=\"place-.*?</tr>", text, re.DOTALL)]
    return {row.name: row for row in found}


def seen(api: ServedApi, query: str = "", name: str | None = None) -> dict[str, Row]:
    with browsing(api, name) as reader:
        answer = reader.get(PAGE + query)
        assert answer.status_code == 200, answer.text
        return rows(answer.text)


def test_a_row_says_how_far_it_is_from_those_ahead_and_what_it_was_made_with(api: ServedApi) -> None:
    judged(api, "bob", 0.5)
    judged(api, "ada", 0.2, file_name="fast.py")
    judged(api, "cyd", 0.25)
    judged(api, "cyd", 0.22)
    found = seen(api)
    assert list(found) == ["ada", "cyd", "bob"]
    assert [row.cell("gap") for row in found.values()] == ["–", "+10.0 %", "2.50×"]
    assert [row.cell("next") for row in found.values()] == ["–", "+10.0 %", "2.27×"]
    assert [row.cell("file") for row in found.values()] == ["fast.py", "k.py", "k.py"]
    assert [row.entries for row in found.values()] == ["1", "2", "1"]
    assert [row.badges for row in found.values()] == [["★ record"], [], ["first"]]
    assert all(row.cell("move") is None for row in found.values()), "there was no yesterday"


def test_changes_since_yesterday_are_shown_and_end_after_a_day(api: ServedApi) -> None:
    for name, score_s in (("ada", 0.2), ("bob", 0.3), ("cyd", 0.5)):
        judged(api, name, score_s)
    later(api, hours=26)
    assert all(row.cell("move") is None for row in seen(api).values()), "nothing has changed"
    judged(api, "cyd", 0.1)
    judged(api, "dan", 0.25)
    found = seen(api)
    assert {name: row.cell("move") for name, row in found.items()} == {
        "cyd": "▲ up 2", "ada": "▼ down 1", "dan": "new", "bob": "▼ down 2",
    }  # fmt: skip
    assert found["cyd"].badges == ["★ record", "most improved"] and found["ada"].badges == ["first"]
    later(api, hours=25.5)
    found = seen(api)
    assert all(row.cell("move") is None and "most improved" not in row.badges for row in found.values())


def test_what_a_freeze_hides_is_neither_counted_nor_compared(api: ServedApi, host: Client) -> None:
    judged(api, "ada", 0.2)
    judged(api, "bob", 0.3)
    later(api, hours=26)
    judged(api, "bob", 0.25)
    before = {name: row.html for name, row in seen(api).items()}
    host.freeze("transpose")
    later(api, minutes=1)
    judged(api, "bob", 0.1)
    judged(api, "eve", 0.01)
    assert {name: row.html for name, row in seen(api).items()} == before
    host.unfreeze("transpose")
    assert list(seen(api)) == ["eve", "bob", "ada"]


@pytest.mark.parametrize("names", ["anonymous", "nicknames"])
def test_where_people_have_other_names_nothing_tells_when_or_how_often_they_submitted(
    api: ServedApi, host: Client, names: NamesShown
) -> None:
    judged(api, "ada", 0.2)
    judged(api, "bob", 0.3)
    later(api, hours=26)
    judged(api, "bob", 0.1, file_name="bobs.cu.py")
    host.edit_board("transpose", names=names)
    with browsing(api, "bob") as bob, browsing(api) as anybody:
        for query in ("", "?sort=entries", "?sort=change", "?sort=newest"):
            text = anybody.get(PAGE + query).text
            for row in rows(text).values():
                assert row.cell("move") is None and row.entries is None and "most improved" not in row.badges
            assert "Entries" not in text
        if names == "anonymous":
            assert "bob" not in anybody.get(PAGE).text and rows(anybody.get(f"{PAGE}?q=bob").text) == {}
        hers = bob.get(PAGE).text
        assert "You are <strong>1st</strong> of 2" in hers
        (own,) = re.findall(r'data-side="(\w+)" class="own"', hers)
        assert own == re.findall(r'<tr id="place-1" data-side="(\w+)"', anybody.get(PAGE).text)[0]
        numbers = {str(api.store.people.ensure(name).id) for name in ("ada", "bob")}
        assert names == "nicknames" or not numbers & set(re.findall(r'data-side="(\w+)"', anybody.get(PAGE).text))


def test_ones_own_row_is_marked_for_oneself_alone(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbslurm.api.pages.boards.drawn_boards.PAGE", 2)
    for n, name in enumerate(("ada", "bob", "cyd"), 1):
        judged(api, name, n / 10)
    with (
        browsing(api) as anybody,
        browsing(api, "bob") as bob,
        browsing(api, "cyd") as cyd,
        browsing(api, "eve") as eve,
    ):
        page = anybody.get(PAGE).text
        assert 'class="own"' not in page and "You are" not in page and '<div id="own"></div>' in page
        his, hers = bob.get(PAGE).text, cyd.get(PAGE).text
        assert re.findall(r'id="place-(\d+)" data-side="\d+" class="own"', his) == ["2"]
        assert 'You are <strong>2nd</strong> of 3 with <span class="mono">200.00 ms</span>' in his
        assert 'href="#place-2"' in his
        assert 'class="own"' not in hers and "You are <strong>3rd</strong> of 3" in hers
        assert 'href="?from=2#place-3"' in hers, "hers is on the next page"
        assert 'class="own"' in cyd.get(f"{PAGE}?from=2").text
        assert "You are" not in eve.get(PAGE).text
        assert anybody.get(PAGE).text == page, "what others were shown stays theirs"


def test_a_teams_row_is_its_members(api: ServedApi, host: Client) -> None:
    host.edit_board("transpose", teams=True)
    for name in ("ada", "bob"):
        api.store.people.ensure(name)
        host.set_team(name, "blue.team")
    judged(api, "ada", 0.2)
    judged(api, "bob", 0.3)
    judged(api, "cyd", 0.4)
    later(api, hours=26)
    judged(api, "bob", 0.1)
    found = seen(api)
    assert [row.entries for row in found.values()] == ["3", "1"]
    with browsing(api, "ada") as ada:
        text = ada.get(PAGE).text
        assert text.count(' class="own"') == 1 and "You are <strong>1st</strong> of 2" in text
        assert 'data-side="blue.team" class="own"' in text


@pytest.mark.parametrize(("shows", "told"), [("own", True), ("hidden", False)])
def test_where_standings_are_hidden_only_the_own_place_may_be_told(
    api: ServedApi, host: Client, shows: StandingsShown, told: bool
) -> None:
    judged(api, "ada", 0.2)
    judged(api, "bob", 0.3)
    host.edit_board("transpose", standings=shows)
    with browsing(api, "bob") as bob, browsing(api) as anybody:
        for query in ("", "?q=a", "?sort=entries"):
            text = bob.get(PAGE + query).text
            assert rows(text) == {} and "ada" not in text and "200.00 ms" not in text
            assert ("You are <strong>2nd</strong> of 2" in text) is told and "Your row" not in text
            assert "You are" not in anybody.get(PAGE + query).text


def test_places_are_found_by_name_and_language_and_put_in_order(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbslurm.api.pages.boards.drawn_boards.PAGE", 2)
    for n, name in enumerate(("Zoe", "adam", "Ada", "bea"), 1):
        judged(api, name, n / 10)
        later(api, minutes=5)
    judged(api, "Ada", 0.9)
    assert list(seen(api, "?q=ad")) == ["adam", "Ada"]
    assert list(seen(api, "?sort=name")) == ["Ada", "adam"]
    assert list(seen(api, "?sort=name&from=2")) == ["bea", "Zoe"]
    assert list(seen(api, "?sort=entries&from=0")) == ["Ada", "Zoe"]
    assert seen(api, "?q=ad")["Ada"].cell("gap") == "3.00×", "of the whole board's leader"
    with browsing(api) as anybody:
        nobody = anybody.get(f"{PAGE}?q=%3Cscript%3E").text
        assert "Nobody here matches that." in nobody and 'value="&lt;script&gt;"' in nobody
        assert "2 of 4 places" in anybody.get(f"{PAGE}?q=ad").text
        refused = anybody.get(f"{PAGE}?sort=sideways")
        assert refused.status_code == 400 and "isn&#39;t an order of places" in refused.text
        assert "Only 2 places are taken here" in anybody.get(f"{PAGE}?q=ad&from=2").text
        for broken in ("q=" + "x" * 200, "from=-1&q=a", "section=" + "x" * 200):
            assert anybody.get(f"{PAGE}?{broken}").status_code == 422
        assert anybody.get(f"{PAGE}?q=a").headers["cache-control"] == "no-store"
        assert 'name="language"' not in anybody.get(PAGE).text, "all are in the same"


def test_whatever_is_looked_for_nothing_of_it_is_kept(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(api, "ada", 0.2)
    drawn: list[DrawnBoards] = []
    built = DrawnBoards.now

    def now(self: DrawnBoards, *told: object) -> object:
        drawn.append(self)
        return built(self, *told)  # type: ignore[arg-type]

    monkeypatch.setattr(DrawnBoards, "now", now)
    with browsing(api) as anybody:
        for n in range(20):
            assert anybody.get(f"{PAGE}?q=a&sort=name&from=0&language={n}").status_code == 200
    assert drawn and {len(one._known) for one in drawn} == {1}


def test_sections_are_for_those_who_may_read_the_roster(api: ServedApi, host: Client) -> None:
    store = api.store
    for name, section in (("ada", "A"), ("bob", "B"), ("cyd", "A")):
        judged(api, name, 0.1 + len(name + section) / 100)
        with store._pool.statement() as connection:
            connection.execute(
                b"INSERT INTO roster (course, person_id, section, added_at) VALUES ('gpu', %s, %s, now())",
                (store.people.ensure(name).id, section),
            )
    host.edit_board("transpose", course="gpu")
    grader, observer = (store.people.ensure(name) for name in ("gil", "oda"))
    board = store.boards.get("transpose")
    store.roster.set_role_on(board.id, grader.id, "grader", by="host", now=api.now)
    store.roster.set_role_on(board.id, observer.id, "observer", by="host", now=api.now)
    with browsing(api, "hana", "staff") as hana, browsing(api, "gil") as gil:
        assert 'name="section"' in hana.get(PAGE).text and "<option>A</option>" in hana.get(PAGE).text
        for helper in (hana, gil):
            text = helper.get(f"{PAGE}?section=A").text
            assert set(rows(text)) == {"ada", "cyd"} and "<option selected>A</option>" in text
            assert rows(helper.get(f"{PAGE}?section=none").text) == {}
    for whose in (None, "ada", "oda"):
        with browsing(api, whose) as other:
            assert other.get(f"{PAGE}?section=A").status_code == 403
            for query in ("", "?sort=name"):
                text = other.get(PAGE + query).text
                assert 'name="section"' not in text and set(rows(text)) == {"ada", "bob", "cyd"}
    host.edit_board("transpose", names="anonymous")
    with browsing(api, "hana", "staff") as hana:
        assert hana.get(f"{PAGE}?section=A").status_code == 403, "it would tell whose pseudonym is whose"


def test_a_private_boards_places_are_found_by_those_only_who_may_see_it(api: ServedApi) -> None:
    judged(api, "ada", 0.2)
    api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
    with browsing(api, "hana", "staff") as hana, browsing(api, "eve") as eve, browsing(api) as anybody:
        assert list(rows(hana.get(f"{PAGE}?q=ada").text)) == ["ada"]
        for other in (eve, anybody):
            assert other.get(f"{PAGE}?q=ada").status_code == 404


def test_baseline_and_speed_of_light_stand_beside_the_score_where_they_are_known(api: ServedApi) -> None:
    store = api.store
    problem = store.boards.get("transpose").problem
    work = {"baseline": "def custom_kernel(data):\n    return data\n", "flops": "rows * cols"}
    config = {**problem.config, **work}
    version = store.problems.add(dataclasses.replace(problem, config=config))
    store.boards.set_live("transpose", version, by="root", now=api.now)
    peak = Peak(flops_per_s=1e6)
    store.calibrations.tend(api.now)
    slots = free_slots({"puppet": Puppet(slots={"H100": 1, "A100": 1}).capacity()}, ())
    for _ in ("H100", "A100"):
        attempt = claim(store.queue, slots, api.now)
        assert attempt is not None
        score(store, attempt, sealed_report(store.attempts.work(attempt.id), score_s=0.5, baseline_s=0.5), api.now)
    judged(api, "ada", 0.25, peak=peak)
    judged(api, "bob", 0.5)
    found = seen(api)
    speed, light, entries = (text for classes, text in found["ada"].cells if "more" in classes)
    assert (speed, entries) == ("2.00×", "1")
    share, light_score = re.fullmatch(r"([\d.e-]+) % \(([\d.]+)\)", light).groups()  # type: ignore[union-attr]
    assert 0 < float(share) < 100 and 0.5 < float(light_score) <= 1, "faster than the baseline"
    assert [text for classes, text in found["bob"].cells if "more" in classes] == ["1.00×", "–", "1"]


def test_what_is_read_again_after_each_event_is_what_reading_all_of_it_gives(api: ServedApi) -> None:
    """Tracks are kept in memory, and only those whom an event may concern are read again."""
    draw, store = random.Random(7), api.store
    numbers: list[tuple[SubmissionId, str]] = []
    for step in range(30):
        name = draw.choice(("ada", "bob", "cyd", "dan"))
        if step % 7 == 6:
            number, whose = numbers.pop(draw.randrange(len(numbers)))
            person = store.people.ensure(whose)
            remove(store.submissions, number, person.id, whose, api.now)
        else:
            numbers.append((judged(api, name, draw.uniform(0.1, 1)), name))
        later(api, hours=draw.choice((0.1, 1, 5)))
        found = seen(api)
        board = store.boards.get("transpose")
        whole = store.standings.tracks(board, "H100", day_before(api.now))
        names: dict[int | str, str] = {store.people.ensure(name).id: name for name in ("ada", "bob", "cyd", "dan")}
        then = {one.person: one.score_s for one in whole_then(api)}
        assert {names[side]: track.before_s for side, track in whole.items() if track.before_s is not None} == then
        ranks = {name: rank for rank, name in enumerate((one for one in then if one in found), 1)}
        due = {name: moved(rank, ranks.get(name)) for rank, name in enumerate(found, 1)}
        nothing = not ranks or set(due.values()) == {"· same place as yesterday"}
        assert {name: row.cell("move") for name, row in found.items()} == (dict.fromkeys(found) if nothing else due)
        told = {names[side]: str(track.entries) for side, track in whole.items() if names[side] in found}
        assert {name: row.entries for name, row in found.items()} == told, step


def moved(rank: int, before: int | None) -> str:
    if before is None:
        return "new"
    up = before - rank
    return f"▲ up {up}" if up > 0 else f"▼ down {-up}" if up else "· same place as yesterday"


def whole_then(api: ServedApi) -> list[Entry]:
    """The ranking as it was the day before, of what is still there."""
    entries = api.store.standings.scored("transpose", "H100")
    return Ranking(one for one in entries if one.at <= day_before(api.now)).entries


def test_where_the_latest_counts_it_is_compared_with_the_latest_of_the_day_before(api: ServedApi) -> None:
    with api.store._pool.statement() as connection:
        connection.execute(b"UPDATE leaderboard SET ranking = 'last'")
    judged(api, "ada", 0.1)
    judged(api, "bob", 0.2)
    later(api, minutes=5)
    judged(api, "ada", 0.4)
    later(api, hours=26)
    judged(api, "ada", 0.15)
    found = seen(api)
    assert {name: (row.cell("move"), row.entries) for name, row in found.items()} == {
        "ada": ("▲ up 1", "3"), "bob": ("▼ down 1", "1"),
    }  # fmt: skip


def test_only_what_holds_nobodys_secret_is_compressed(api: ServedApi) -> None:
    judged(api, "ada", 0.2)
    packed, plain = {"Accept-Encoding": "br, gzip;q=0.5"}, {"Accept-Encoding": "identity"}
    with browsing(api) as anybody, browsing(api, "ada") as ada:
        short, long = anybody.get(PAGE, headers=packed), anybody.get(PAGE, headers=plain)
        assert short.headers["content-encoding"] == "gzip" and "content-encoding" not in long.headers
        assert short.text == long.text and short.headers["etag"] == long.headers["etag"]
        assert int(short.headers["content-length"]) < len(long.content) / 2
        assert "Accept-Encoding" in short.headers["vary"] and "Accept-Encoding" in long.headers["vary"]
        for refused in ("gzip;q=0", "gzip; q=0.000", "br", "identity"):
            assert "content-encoding" not in anybody.get(PAGE, headers={"Accept-Encoding": refused}).headers
        kept = {**packed, "If-None-Match": short.headers["etag"]}
        assert anybody.get(PAGE, headers=kept).status_code == 304
        for path in (PAGE, f"{PAGE}?q=a", "/me"):
            assert "content-encoding" not in ada.get(path, headers=packed).headers, "a token is in it"
        for name in STATIC:
            file = anybody.get(asset(name), headers=packed)
            assert file.headers["content-encoding"] == "gzip" and file.content == static_file(name)
            assert "immutable" in file.headers["cache-control"] and "Accept-Encoding" in file.headers["vary"]
            assert anybody.get(asset(name), headers=plain).content == static_file(name)


def test_a_first_view_of_a_hundred_people_is_small(api: ServedApi) -> None:
    """Of what is compressed; how many requests it takes is seen in a browser."""
    for n in range(100):
        judged(api, f"Somebody Withalongname {n}", 0.1 * 1.01**n, file_name=f"kernel-{n}.py")
    with httpx.Client(base_url=api.url, headers={"Accept-Encoding": "gzip", "Accept": "text/html"}) as anybody:
        page = anybody.get(PAGE)
        assert len(rows(page.text)) == 100
        files = re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text)
        sizes = {path: int(anybody.get(path).headers["content-length"]) for path in files}
        sizes[PAGE] = int(page.headers["content-length"])
    assert sum(sizes.values()) < 60_000, sizes
    assert static_file("live.js") in static_file("board.js"), "both scripts in one file"
