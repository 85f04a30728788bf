"""Archives of a real board: written both ways, verified without a database, and with nothing that isn't to be told."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kbslurm.api import archive_folder
from kbslurm.api.host_lookup import at_work
from kbslurm.client.http import Client
from kbslurm.domain.archive import END
from kbslurm.errors import BackendTrouble, Invalid, KbslurmError, Refused
from kbslurm.flow import archived
from tests.command_line import CommandLine
from tests.flow.stage import HandClock, Stage
from tests.flow.test_board_times import clock
from tests.flow.test_grades import SCHEME, course
from tests.flow.test_measuring import PAIRED, judge
from tests.flow.test_pages import HIDDEN_SPEC, SECRET_LOG, browsing, judged
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


@pytest.fixture
def here(api: ServedApi, tmp_path: Path) -> CommandLine:
    return CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})


@pytest.fixture
def there(api: ServedApi, tmp_path: Path) -> CommandLine:
    token = api.store.tokens.issue(api.store.people.ensure("hana", "staff").id, now=api.now)
    return CommandLine(cwd=tmp_path, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token})


def away(tmp_path: Path) -> CommandLine:
    """Somebody with the folder and nothing else."""
    return CommandLine(cwd=tmp_path, env={"DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"})


def read(folder: Path, table: str) -> list[dict[str, Any]]:
    return [dict(row) for row in archive_folder.read(folder, table)]


def everything(folder: Path) -> str:
    return "\n".join(file.read_bytes().decode("utf-8", "replace") for file in folder.rglob("*") if file.is_file())


def reseal(folder: Path) -> None:
    """Make the digests right again, as whoever forges an archive would."""
    (folder / archive_folder.SUMS).unlink()
    archive_folder._write_sums(folder)


def forge(folder: Path, table: str, change: Callable[[list[dict[str, Any]]], object]) -> None:
    rows = read(folder, table)
    change(rows)
    (folder / "data" / f"{table}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reseal(folder)


def test_both_ways_write_what_verifies_and_grades_without_a_database(
    api: ServedApi, host: Client, here: CommandLine, there: CommandLine, tmp_path: Path
) -> None:
    course(api, host)
    scheme = tmp_path / "scheme.toml"
    scheme.write_text(SCHEME)
    grades = here("grades", "transpose", "--scheme", str(scheme), "--json").json()
    for name, way in (("here", here), ("there", there)):
        for kind in ("private", "public"):
            folder = tmp_path / f"{name}-{kind}"
            more = ("--private",) if kind == "private" else ()
            done = way("archive", "transpose", "--out", str(folder), "--json", *more)
            assert done.code == 0, done.err
            told = done.json()
            assert told["rows"]["submissions"] == told["rows"]["verdicts"] == 3 and told["rows"]["standings"] == 2
            digest = hashlib.sha256((folder / "SHA256SUMS").read_bytes()).hexdigest()
            assert told["sha256"] == digest
            checked = away(tmp_path)("archive", "verify", str(folder), "--json")
            assert checked.code == 0, checked.out + checked.err
            found = checked.json()
            assert found["holds"] and found["scores"] == 3 and found["standings"] == 2 and found["samples"] > 9
            assert found["files"] == told["files"] and found["unchecked"] == 0
            assert found["sources"] == (3 if kind == "private" else 0)
            again = away(tmp_path)(
                "grades", "transpose", "--scheme", str(scheme), "--archive", str(folder), "--json"
            ).json()
            if kind == "private":
                assert again == grades
                why = away(tmp_path)("grades", "why", "transpose", "Bea B", "-s", str(scheme), "--archive", str(folder))
                assert "20 % of the points lost" in why.out
            else:
                assert sorted(row["points"] for row in again["grades"]) == [0, 80, 80]
                assert {row["name"] for row in again["grades"]}.isdisjoint({"ada", "bea", "cyd"})
    data = [(tmp_path / f"{name}-private" / "data" / "submissions.jsonl").read_text() for name in ("here", "there")]
    assert data[0] == data[1]
    said = away(tmp_path)("archive", "verify", str(tmp_path / "here-public"))
    assert said.out.startswith("checked: ") and said.out.endswith("everything is as it was written\n")
    lines = [line for line in api.store.events.audit_log(limit=100) if line.kind == "staff.archive"]
    assert [(line.data["private"], line.data["by"], line.data["via"]) for line in lines] == [
        (False, "hana", "api"), (True, "hana", "api"), (False, "ada", "command"), (True, "ada", "command"),
    ]  # fmt: skip
    assert lines[0].data["place"].endswith(f":{tmp_path}/there-public")


def test_it_names_the_images_that_runs_on_ray_are_in(api: ServedApi, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    digest = "sha256:" + "0f" * 32
    (tmp_path / "host" / "kbslurm.toml").write_text(
        f"[ray.eu]\nurl = 'http://127.0.0.1:1'\nservice_url = 'http://127.0.0.1:2'\nimage = '/opt/cuda.sif'\n"
        f"image_digest = '{digest}'\ngpus.H100 = {{}}\ngpus.MI300 = {{ image = '/opt/rocm.sif', vendor = 'amd' }}\n"
    )
    here = CommandLine(cwd=tmp_path / "host", env={"DATABASE_URL": api.store.url})
    done = here("archive", "transpose", "--out", str(tmp_path / "written"))
    assert done.code == 0, done.err
    assert read(tmp_path / "written", "images") == [
        {"place": "eu", "gpu": "H100", "image": "cuda.sif", "digest": digest},
        {"place": "eu", "gpu": "MI300", "image": "rocm.sif", "digest": ""},
    ]


def test_reports_from_before_logs_were_marked_still_verify(api: ServedApi, here: CommandLine, tmp_path: Path) -> None:
    """Version 4 of the wire format says which case wrote what, version 5 what of a call could be hidden; the figures
    of version 3 are the same where that is nothing. Others' reports aren't read."""
    for name, score_s in (("ada", 0.5), ("bea", 0.4)):
        judged(api, name, score_s)
    folder = tmp_path / "private"
    assert here("archive", "transpose", "--private", "--no-parquet", "--out", str(folder)).code == 0

    def of_version(number: int) -> Callable[[list[dict[str, Any]]], object]:
        def change(rows: list[dict[str, Any]]) -> None:
            for row in rows:
                row["detail"]["version"] = number
                row["detail"].pop("log_parts", None)

        return change

    def without_leeway(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            assert row.pop("leeway_ns") == row.pop("alone_ns") == [] and not row.pop("baseline_leeway_ns")

    forge(folder, "samples", without_leeway)
    for number, unchecked in ((4, 0), (3, 0), (2, 2)):
        forge(folder, "verdicts", of_version(number))
        found = away(tmp_path)("archive", "verify", str(folder), "--json").json()
        assert found["holds"] and found["unchecked"] == unchecked, (number, found)


def test_what_may_be_handed_on_has_no_names_code_logs_or_hidden_cases(
    api: ServedApi, host: Client, here: CommandLine, tmp_path: Path
) -> None:
    course(api, host)
    for name in ("ada", "bea"):
        host.set_team(f"person:{name}", "blue-whales")
    judged(api, "ada", 0.4)
    assert here("archive", "transpose", "-o", str(tmp_path / "mine"), "--private").code == 0
    assert here("archive", "transpose", "-o", str(tmp_path / "public")).code == 0
    mine, public = everything(tmp_path / "mine"), everything(tmp_path / "public")
    code = json.dumps(GOOD.decode())[1:-1]
    secret = ("Ada Lovelace", "ada@example.edu", "Bea B", "Lovelace, Ada", '"4711"', code[:60], SECRET_LOG, HIDDEN_SPEC,
              "a log with", "k.py", "blue-whales", '"ada"')  # fmt: skip
    for word in secret:
        told = json.dumps(word)[1:-1]
        assert word in mine or told in mine or word in ("blue-whales", '"ada"'), word
        assert word not in public and told not in public, word
    numbers = {row["person_id"] for row in read(tmp_path / "public", "people")}
    known = {api.store.people.ensure(name).id for name in ("ada", "bea", "cyd", "eve")}
    assert not numbers & known and len(numbers) == 4
    assert {row["person_id"] for row in read(tmp_path / "public", "submissions")} <= numbers
    pages = "".join(page.read_text() for page in (tmp_path / "mine").rglob("*.html"))
    assert "http" not in pages.replace("http-equiv", "") and "<script" not in pages and "default-src 'none'" in pages
    assert (tmp_path / "mine").stat().st_mode & 0o077 == 0


def test_a_frozen_boards_archive_has_nothing_that_the_freeze_hides(
    api: ServedApi, host: Client, here: CommandLine, tmp_path: Path
) -> None:
    judged(api, "ada", 0.5)
    host.freeze("transpose", None)
    clock(api).go(60)
    judged(api, "bea", 0.25)
    for folder, more in ((tmp_path / "public", ()), (tmp_path / "mine", ("--private",))):
        assert here("archive", "transpose", "-o", str(folder), *more).code == 0
        assert away(tmp_path)("archive", "verify", str(folder)).code == 0
    assert [len(read(tmp_path / "mine", table)) for table in ("submissions", "runs", "standings")] == [2, 2, 2]
    assert [len(read(tmp_path / "public", table)) for table in ("submissions", "runs", "standings")] == [1, 1, 1]
    assert [len(read(tmp_path / "public", table)) for table in ("verdicts", "attempts", "people")] == [1, 1, 1]


def test_what_a_board_hides_is_not_handed_on(
    api: ServedApi, host: Client, here: CommandLine, there: CommandLine, tmp_path: Path
) -> None:
    """A submission's number and moment would say whose it is."""
    judged(api, "ada", 0.5)
    hiding: list[dict[str, Any]] = [{"names": "anonymous"}, {"names": "real", "standings": "hidden"}]
    for said in hiding:
        host.edit_board("transpose", **said)
        for way in (here, there):
            refused = way("archive", "transpose", "-o", str(tmp_path / "a"))
            assert refused.code == 2 and "hides names or standings" in refused.err, refused
            assert not (tmp_path / "a").exists()
    assert here("archive", "transpose", "-o", str(tmp_path / "a"), "--private").code == 0
    assert "ada" in everything(tmp_path / "a")


def test_every_changed_byte_and_every_forged_number_is_found(api: ServedApi, here: CommandLine, tmp_path: Path) -> None:
    judged(api, "ada", 0.5)
    judged(api, "bea", 0.25)
    folder = tmp_path / "kept"
    assert here("archive", "transpose", "-o", str(folder), "--private", "--no-parquet").code == 0

    def verified() -> tuple[int, dict[str, Any]]:
        said = here("archive", "verify", str(folder), "--json")
        return said.code, said.json()

    assert verified()[0] == 0
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or not (before := file.read_bytes()):
            continue
        for at in (0, len(before) // 2, len(before) - 1):
            file.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
            code, told = verified()
            # The list itself can't be read any more, or the first table: that is said in one sentence.
            assert code == 1 or (code == 2 and "error" in told), (file, at, told)
            if code == 1 and file.name != archive_folder.SUMS:
                assert told["changed"] == [f"{file.relative_to(folder)} was changed"]
        file.write_bytes(before)
    (folder / "more.txt").write_text("x")
    assert verified()[1]["changed"] == ["more.txt isn't listed in SHA256SUMS"]
    (folder / "more.txt").unlink()
    assert verified()[0] == 0

    kept = tmp_path / "copy"
    shutil.copytree(folder, kept)

    def forged(table: str, change: Callable[[list[dict[str, Any]]], object]) -> list[str]:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        forge(folder, table, change)
        code, told = verified()
        assert code == 1 and not told["changed"], told
        found: list[str] = told["differences"]
        return found

    def faster(rows: list[dict[str, Any]]) -> None:
        ranked = next(row for row in rows if row["phase"] == "ranked")
        ranked["calls_ns"] = [one // 2 for one in ranked["calls_ns"]]

    assert "its report doesn't follow from its raw samples" in forged("samples", faster)[0]
    found = forged("verdicts", lambda rows: rows[0].update(score_s=0.1, low_s=0.1, high_s=0.1))
    assert "its score is 0.1 s, and its raw samples give 0.5" in found[0] and "standings on H100" in found[1]
    assert "place 1 doesn't follow" in forged("standings", lambda rows: rows[0].update(score_s=0.2))[0]
    assert "there are 1 places, and the scores give 2" in forged("standings", lambda rows: rows.pop())[0]
    assert "no verdict" in forged("verdicts", lambda rows: rows.pop())[0]
    assert "its source isn't" in forged("submissions", lambda rows: rows[0].update(source="x = 1"))[0]
    assert "doesn't follow from its raw samples" in forged("samples", lambda rows: rows.clear())[0]


@pytest.mark.parametrize("rivals", [(0.3, 0.4), (None, 0.4), (0.3, None)])
def test_reference_times_finals_and_second_measurements_are_recomputed_too(
    database_url: str, tmp_path: Path, rivals: tuple[float | None, float | None]
) -> None:
    stage = Stage.build(database_url, problem=PAIRED, confirm=True)
    with closing(stage):
        for by, took in (("ada", 0.4), ("bob", 0.3)):
            stage.submit(by=by, mode="leaderboard")
            while stage.open_runs():
                judge(stage, took, baseline_s=0.5)
        stage.store.finals.order("board", "A100", 2, by="host", now=stage.clock.now())
        while stage.open_runs():
            final(stage, rivals)
        stage.store.finals.apply("board", "A100", by="host", now=stage.clock.now())
        gone = stage.submit(by="cyd", mode="leaderboard")
        while stage.open_runs():
            judge(stage, 0.2, baseline_s=0.5)
        stage.store.submissions.take_back(gone.submission_id, "cyd", stage.clock.now())
        kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": stage.store.url})
        for kind, more in (("public", ()), ("private", ("--private",))):
            assert kbslurm("archive", "board", "-o", str(tmp_path / kind), *more).code == 0
            said = away(tmp_path)("archive", "verify", str(tmp_path / kind), "--json")
            assert said.code == 0, said.out
            told = said.json()
            assert (told["calibrations"], told["final_scores"], told["standings"]) == (1, 2, 2), told
        forge(tmp_path / "public", "final_scores", lambda rows: rows[0].update(score_s=1e-3, low_s=1e-3, high_s=1e-3))
        found = archived.verify(lambda table: archive_folder.read(tmp_path / "public", table)).differences
        assert any("doesn't follow from the final's samples" in one for one in found)
        forge(
            tmp_path / "private", "calibrations", lambda rows: rows[0].update(b_ref_s=[0.1] * len(rows[0]["b_ref_s"]))
        )
        found = archived.verify(lambda table: archive_folder.read(tmp_path / "private", table)).differences
        assert any("the reference times on A100 don't follow" in one for one in found)
        assert any("its score is" in one for one in found)


def final(stage: Stage, rivals: tuple[float | None, float | None]) -> None:
    from kbslurm.flow.score import score
    from tests.flow.puppet import sealed_report
    from tests.flow.test_measuring import next_attempt

    attempt = next_attempt(stage)
    report = sealed_report(stage.store.attempts.work(attempt.id), score_s=0.5, baseline_s=0.5, rivals=rivals)
    score(stage.store, attempt, report, stage.clock.now())


def test_fixed_standings_and_the_latest_are_what_the_archive_has(
    api: ServedApi, host: Client, here: CommandLine, tmp_path: Path
) -> None:
    judged(api, "ada", 0.5)
    judged(api, "ada", 0.7)
    judged(api, "bea", 0.6)
    with psycopg.connect(api.store.url, autocommit=True) as connection:
        connection.execute(b"UPDATE leaderboard SET ranking = 'last'")
    assert here("archive", "transpose", "-o", str(tmp_path / "last")).code == 0
    assert [row["submission"] for row in read(tmp_path / "last", "standings")] == [3, 2]
    assert here("archive", "verify", str(tmp_path / "last")).code == 0
    host.close_board("transpose")
    host.finalise("transpose", finals=False)
    with psycopg.connect(api.store.url, autocommit=True) as connection:
        connection.execute(b"UPDATE leaderboard SET ranking = 'best'")
    assert here("archive", "transpose", "-o", str(tmp_path / "fixed")).code == 0
    assert [row["submission"] for row in read(tmp_path / "fixed", "standings")] == [3, 2]
    assert here("archive", "verify", str(tmp_path / "fixed")).code == 0


def test_nothing_is_overwritten_and_what_is_interrupted_leaves_nothing(
    api: ServedApi, host: Client, here: CommandLine, tmp_path: Path
) -> None:
    judged(api, "ada", 0.5)
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    wrong = here("archive", "transpose", "--out", str(folder))
    assert wrong.code == 2 and "exists already" in wrong.err and (folder / "mine.txt").read_text() == "mine"
    wrong = here("archive", "transpose", "--out", str(tmp_path / "no" / "a"))
    assert wrong.code == 2 and "there is no folder" in wrong.err
    wrong = here("archive", "nowhere", "--out", str(tmp_path / "b"))
    assert wrong.code == 2 and "no board" in wrong.err
    wrong = here("archive", "verify", str(tmp_path))
    assert wrong.code == 2 and "isn't an archive" in wrong.err

    def rows(stop: int) -> Iterator[tuple[str, Any]]:
        with closing(host.archive("transpose", private=True, place="x:/y")) as found:
            for count, row in enumerate(found):
                if count == stop:
                    return
                yield row

    everything_ = list(rows(10**6))
    assert everything_[-1][0] == END
    for stop in (0, 3, len(everything_) - 1):
        with pytest.raises(BackendTrouble, match="before the archive's end"):
            archive_folder.write(rows(stop), tmp_path / "c", private=True)

    def broken() -> Iterator[tuple[str, Any]]:
        yield from rows(5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive_folder.write(broken(), tmp_path / "c", private=True)
    assert not (tmp_path / "b").exists() and not (tmp_path / "c").exists() and not list(tmp_path.glob(".*.part"))
    noted = len([line for line in api.store.events.audit_log(limit=100) if line.kind == "staff.archive"])
    with closing(at_work(api.context, "hana", None).archive("transpose", private=True, place="x:/y")) as found:
        assert next(found)[0] == "board" and next(found)[0] == "problems"
    assert noted == len([line for line in api.store.events.audit_log(limit=100) if line.kind == "staff.archive"])


def test_only_owners_take_everything_and_only_graders_the_rest(api: ServedApi) -> None:
    judged(api, "ada", 0.5)
    tokens = {}
    for name in ("gus", "otto", "eve"):
        person = api.store.people.ensure(name)
        tokens[name] = api.store.tokens.issue(person.id, now=api.now)
    with Client(api.url, admin=ADMIN) as root:
        root.set_board_role("transpose", "person:gus", "grader")
        root.set_board_role("transpose", "person:otto", "owner")

    def asked(name: str, *, private: bool) -> str:
        with Client(api.url, token=tokens[name], admin=tokens[name]) as client:
            return json.dumps(list(client.archive("transpose", private=private, place="x:/y")))

    assert SECRET_LOG in asked("otto", private=True) and SECRET_LOG not in asked("gus", private=False)
    with pytest.raises(Refused, match="owner's rights"):
        asked("gus", private=True)
    with pytest.raises(KbslurmError):
        asked("eve", private=False)


def test_deleting_somebody_lists_the_archives_that_have_them(
    api: ServedApi, host: Client, here: CommandLine, tmp_path: Path
) -> None:
    judged(api, "ada", 0.5)
    api.store.people.ensure("zoe")
    assert here("archive", "transpose", "-o", str(tmp_path / "one"), "--private").code == 0
    (told,) = host.delete_preview("person:ada")["archives"]
    assert told["leaderboard"] == "transpose" and told["private"] and told["place"].endswith("/one")
    assert host.delete_preview("person:zoe")["archives"] == []
    assert "earlier private archive of transpose to write again" in here("user", "delete", "ada").out
    with browsing(api, "olga", "owner") as olga:
        from tests.flow.test_pages import csrf

        key = csrf(olga.get("/staff").text)
        asked = olga.post("/staff/delete", data={"csrf": key, "person": "ada"})
        assert "has to be written again" in asked.text
    done = here("user", "delete", "ada", "--yes")
    assert done.code == 0 and str(tmp_path / "one") in done.out


def test_parquet_has_the_same_rows_and_without_it_there_is_one_sentence(
    api: ServedApi, here: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq = importlib.import_module("pyarrow.parquet")  # an extra; the tests have it
    judged(api, "ada", 0.5)
    assert here("archive", "transpose", "-o", str(tmp_path / "a"), "--parquet").code == 0
    for file in sorted((tmp_path / "a" / "data").iterdir()):
        rows = pq.read_table(tmp_path / "a" / "parquet" / f"{file.stem}.parquet").to_pylist()
        said = read(tmp_path / "a", file.stem)
        assert len(rows) == len(said)
        for row, line in zip(rows, said, strict=True):
            for name, value in line.items():
                kept = json.loads(row[name]) if isinstance(value, dict) or name in ("gpus", "late") else row[name]
                assert kept == value, (file.stem, name)
    out = tmp_path / "places.parquet"
    assert here("export", "transpose", "--format", "parquet", "-o", str(out)).code == 0
    asked = here("export", "transpose", "--format", "json").json()
    assert pq.read_table(out).to_pylist() == asked == here("export", "transpose", "--json").json()
    assert here("export", "transpose", "--format", "csv").out == here("export", "transpose").out
    assert here("export", "transpose", "--format", "parquet").code == 2
    wrong = here("export", "transpose", "--format", "xls")
    assert wrong.code == 2 and "isn't a format of exports" in wrong.err
    monkeypatch.setattr("kbslurm.api.parquet.is_there", lambda: False)
    for words in (
        ("archive", "transpose", "-o", str(tmp_path / "b"), "--parquet"),
        ("export", "transpose", "--format", "parquet", "-o", str(tmp_path / "b")),
    ):
        wrong = here(*words)
        assert wrong.code == 2 and "Parquet needs pyarrow" in wrong.err and not (tmp_path / "b").exists()
    assert here("archive", "transpose", "-o", str(tmp_path / "b")).code == 0
    assert not (tmp_path / "b" / "parquet").exists()


def test_an_archive_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        archive_folder.check_archive(tmp_path)
