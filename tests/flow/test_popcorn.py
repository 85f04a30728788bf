"""popcorn-cli against the real service: list, submit in every mode, watch, show, delete, join, admin."""

from __future__ import annotations

import base64
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.api.server import KEEP_ALIVE_S
from kbslurm.client.http import Client
from kbslurm.contract.artifacts import Artifacts
from kbslurm.contract.boards import Leaderboard
from kbslurm.contract.invites import InvitesMade
from kbslurm.contract.operations import Stats
from kbslurm.contract.people import PersonTold
from kbslurm.contract.queue import RunnerQueue
from kbslurm.contract.rankings import Standing
from kbslurm.contract.submissions import HostsSubmissionTold, Submission, SubmissionSummary
from kbslurm.store.submissions import Submissions
from tests import databases
from tests.popcorn.client import ClientDied, Popcorn
from tests.popcorn.served_api import GOOD, WRONG, ServedApi, served, working


@pytest.fixture(scope="module")
def api(
    postgres_server: databases.Server, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedApi]:
    """One service for all of this file, with its daemon at work."""
    url = postgres_server.create(template_database)
    place = tmp_path_factory.mktemp("popcorn")
    with served(url, place) as built, working(built, place):
        yield built
    postgres_server.drop(url)


@pytest.fixture(scope="module")
def ranked(api: ServedApi) -> tuple[Popcorn, int]:
    """A client, and its leaderboard submission that passed."""
    client = api.client("ada")
    number = client.submit("Transpose", "h100", "LEADERBOARD", "slices.py", GOOD)
    client.wait(number)
    return client, number


def test_a_competitor_lists_boards_and_gpus(api: ServedApi) -> None:
    client = api.client("ada")
    (board,) = [row for row in client.leaderboards() if row["name"] == "transpose"]
    Leaderboard.model_validate(board)
    assert client.gpus("transpose") == ["H100", "A100"]
    assert client.gpus("TRANSPOSE") == ["H100", "A100"]
    with pytest.raises(ClientDied, match="no board 'nowhere'") as died:
        client.gpus("nowhere")
    assert died.value.status == 404


def test_a_ranked_submission_has_a_public_score_and_a_passed_secret_run(
    api: ServedApi, ranked: tuple[Popcorn, int]
) -> None:
    client, number = ranked
    told = client.show(number)
    Submission.model_validate(told)
    assert told["done"] and told["job"] == {**told["job"], "status": "succeeded", "error": None}
    assert told["code"].encode() == GOOD and told["runner_queue"] is None
    assert [(run["mode"], run["secret"], run["passed"]) for run in told["runs"]] == [
        ("test", False, True), ("benchmark", False, True), ("leaderboard", False, True), ("leaderboard", True, True),
    ]  # fmt: skip
    tests, timed, public, secret = told["runs"]
    count = int(tests["result"]["test-count"])
    assert count > 0 and tests["result"]["check"] == "pass"
    assert all(tests["result"][f"test.{n}.status"] == "pass" for n in range(count))
    assert float(timed["result"]["benchmark.0.mean"]) > 0 and int(timed["result"]["benchmark.0.runs"]) > 0
    assert public["score"] is not None and public["result"] == {} and secret["score"] is None
    assert all(run["runner"] == "H100" for run in told["runs"])
    (row,) = client.call("GET", "/submissions/transpose/h100").good()
    Standing.model_validate(row)
    assert (row["submission_id"], row["rank"], row["user_name"]) == (number, 1, "ada")
    assert row["submission_score"] == pytest.approx(float(public["score"]), abs=1e-11)
    assert client.call("GET", "/submissions/transpose/A100").good() == []
    assert client.call("GET", f"/submission_count/transpose/H100?user_id={told['user_id']}").good() == {"count": 1}


def test_a_wrong_submission_is_told_by_the_one_channel_that_there_is(api: ServedApi) -> None:
    client = api.client("boris")
    number = client.submit("transpose", "A100", "test", "square_only.py", WRONG)
    with pytest.raises(ClientDied, match=r"wrong.*\n.*test \d") as died:
        client.wait(number)
    told = client.show(number)
    assert told["done"] and told["job"]["status"] == "failed" and told["job"]["error"] == died.value.said
    assert told["runs"][0]["result"]["check"] == "fail"
    assert "test.0.spec" in told["runs"][0]["result"]


def test_a_benchmark_is_timed_and_does_not_rank(api: ServedApi) -> None:
    client = api.client("cleo")
    told = client.wait(
        client.submit("transpose", "A100", "benchmark", "k.py", b"#!POPCORN leaderboard transpose\n" + GOOD)
    )
    assert [run["mode"] for run in told["runs"]] == ["test", "benchmark"]
    assert all(run["score"] is None for run in told["runs"])
    assert not [row for row in client.call("GET", "/submissions/transpose/A100").good() if row["user_name"] == "cleo"]


def test_a_profile_is_a_stream_with_progress_at_once_and_the_result_last(api: ServedApi) -> None:
    client = api.client("dora")
    events = list(client.stream("Transpose", "a100", "Profile", "k.py", GOOD))
    names = [name for name, _ in events]
    assert names[0] == "status" and names[-1] == "result" and set(names[:-1]) == {"status"}
    assert all(type(data["message"]) is str and data["message"] for name, data in events if name == "status")
    last = events[-1][1]
    assert last["status"] == "success" and "passed" in last["reports"][0]
    (full,) = last["results"]
    profile = full["runs"]["profile.0"]
    assert "profile" in profile and {"stdout", "stderr", "result"} <= set(profile["run"])
    assert type(profile["run"]["result"]["benchmark-count"]) is int
    shown = base64.b64decode(profile["run"]["result"]["benchmark.0.report"]).decode()
    assert "cProfile" in shown and "of the functions' own time" in shown
    drawn = profile["profile"]
    assert drawn["profiler"] == "cProfile" and "custom_kernel" in profile["run"]["stdout"]
    assert "custom_kernel" in last["reports"][0]
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(drawn["trace"]))) as archive:
        zipped = set(archive.namelist())
        table = archive.read("benchmark-0.table.txt")
    listed = client.call("GET", drawn["download_url"]).good()
    Artifacts.model_validate(listed)
    assert {row["name"] for row in listed["artifacts"]} == zipped and table
    url = next(row["url"] for row in listed["artifacts"] if row["name"] == "benchmark-0.table.txt")
    file = client.call("GET", url)
    headers = {name.lower(): value for name, value in file.headers.items()}
    assert (file.status, file.body) == (200, table)
    assert headers["content-type"] == "application/octet-stream" and headers["x-content-type-options"] == "nosniff"
    assert headers["content-disposition"].startswith('attachment; filename="')
    other, hosts = api.client("dieter"), api.host()
    assert [other.call("GET", path).status for path in (drawn["download_url"], url)] == [403, 403]
    assert hosts.call("GET", url.replace("/user/", "/admin/"), admin=True).body == table
    assert client.call("GET", url.replace("table.txt", "..%2Ftable.txt")).status == 404
    with Client(api.url, token=client.cli_id) as ours:
        (found,) = [one for one in ours.artifacts(last["id"]) if one.name == "benchmark-0.table.txt"]
        assert found.size == len(table) and ours.artifact(last["id"], found.gpu, found.name) == table
    client.delete(last["id"])
    assert client.call("GET", url).status == 404
    assert hosts.call("GET", url.replace("/user/", "/admin/"), admin=True).status == 404, (
        "its files were purged with it"
    )


def test_who_hangs_up_does_not_lose_the_run(api: ServedApi) -> None:
    client = api.client("emil")
    stream = client.stream("transpose", "A100", "test", "k.py", GOOD)
    assert next(stream)[0] == "status"
    stream.close()
    (line,) = client.submissions("transpose")
    SubmissionSummary.model_validate(line)
    assert client.wait(line["id"])["job"]["status"] == "succeeded"


def test_deleting_hides_and_purges_and_nobody_else_may(api: ServedApi, ranked: tuple[Popcorn, int]) -> None:
    client, other = api.client("fay"), api.client("gus")
    number = client.submit("transpose", "H100", "leaderboard", "slices.py", GOOD)
    for method in ("GET", "DELETE"):
        assert other.call(method, f"/user/submissions/{number}").status == 403
    client.delete(number)
    assert client.call("GET", f"/user/submissions/{number}").status == 404
    assert client.call("DELETE", f"/user/submissions/{number}").status == 404
    assert client.submissions("transpose") == []
    assert api.store.submissions.get(number).source == ""  # type: ignore[arg-type]
    assert not [row for row in client.call("GET", "/submissions/transpose/H100").good() if row["user_name"] == "fay"]


def test_a_connection_outlives_the_pause_between_two_polls(api: ServedApi) -> None:
    """The client polls every 5 s on one connection and dies when it was closed meanwhile."""
    client = api.client("ada")
    client.leaderboards()
    before = client._connection
    threading.Event().wait(6.5)
    client.leaderboards()
    assert client._connection is before
    assert KEEP_ALIVE_S >= 75


def test_what_is_too_large_is_read_to_its_end_and_refused_on_the_same_connection(api: ServedApi) -> None:
    client = api.client("ada")
    for size in (1_000_001, 8_000_000):
        answer = client.upload("/submission/transpose/H100/test", "k.py", b"#" * size)
        assert answer.status == 413
        with pytest.raises(ClientDied, match="1,000,000"):
            answer.good()
    assert client.gpus("transpose")


def test_join_opens_a_private_board_to_one_person(api: ServedApi) -> None:
    host, guest, other = api.host(), api.client("ida"), api.client("jon")
    api.store.boards.add("secretive", api.store.boards.get("transpose").problem, gpus=("H100",), visibility="closed")
    for client in (guest, other, api.client(None)):
        assert "secretive" not in [row["name"] for row in client.leaderboards()]
        assert client.call("GET", "/gpus/secretive").status == 404
        assert client.call("GET", "/submissions/secretive/H100").status == 404
    with pytest.raises(ClientDied, match="private, and you weren't invited") as died:
        guest.submit("secretive", "H100", "test", "k.py", GOOD)
    assert died.value.status == 403
    made = host.host("POST", "/admin/invites", {"leaderboards": ["Secretive"], "count": 2})
    InvitesMade.model_validate(made)
    first, second = made["codes"]
    assert guest.join(first.lower()) == ["secretive"] == guest.join(first)
    with pytest.raises(ClientDied) as died:
        other.join(first)
    assert died.value.status == 403
    assert "secretive" in [row["name"] for row in guest.leaderboards()]
    assert guest.gpus("secretive") == ["H100"]
    assert guest.wait(guest.submit("secretive", "H100", "test", "k.py", GOOD))["job"]["status"] == "succeeded"
    listed = host.host("GET", "/admin/leaderboards/secretive/invites")["invites"]
    assert [(row["code"], row["user_name"]) for row in listed] == [(first, "ida"), (second, None)]
    assert host.host("DELETE", f"/admin/invites/{first}")["was_claimed"] is True
    assert guest.call("GET", "/gpus/secretive").status == 404
    assert host.call("DELETE", f"/admin/invites/{first}", admin=True).status == 404


def test_a_pending_token_is_nobodys_until_it_is_linked_once(api: ServedApi) -> None:
    client, host = api.client(None), api.host()
    state = client.register("discord")
    assert client.call("GET", "/user/submissions").status == 401
    kim = host.host("POST", "/admin/people", {"name": "kim", "provider": "discord", "account": "4711"})
    PersonTold.model_validate(kim)
    assert host.host("POST", "/admin/people", {"name": "x", "provider": "discord", "account": "4711"}) == kim
    assert host.host("POST", "/admin/link", {"token": state, "person": "discord:4711"}) == kim
    assert client.submissions("transpose") == []
    assert host.call("POST", "/admin/link", {"token": state, "person": "discord:4711"}, admin=True).status == 400
    # A token that somebody has already can't be given to anybody else.
    api.store.people.ensure("ada")
    assert host.call("POST", "/admin/link", {"token": state, "person": "person:ada"}, admin=True).status == 400


def test_a_poll_in_the_queue_says_place_and_queue(api: ServedApi) -> None:
    client = api.client("lea")
    api.store.boards.add("elsewhere", api.store.boards.find("transpose").problem, gpus=("MI300",))  # type: ignore[union-attr]
    numbers = [client.submit("elsewhere", "mi300", "test", "k.py", GOOD) for _ in range(2)]
    told = client.show(numbers[1])
    assert told["job"]["status"] == "pending" and not told["done"] and told["runs"] == []
    queue = told["runner_queue"]
    RunnerQueue.model_validate(queue)
    assert (queue["queued_jobs"], queue["place"], queue["status"]) == (2, 2, "unavailable")
    here = client.call("GET", "/runner_queue/h100").good()
    assert (here["gpu"], here["status"]) == ("H100", "available")
    assert client.call("GET", "/runner_queue/GH9000").good()["status"] == "unavailable"
    for number in numbers:
        client.delete(number)


def test_the_answer_to_a_submission_says_its_place_and_reads_nothing_again(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = api.client("lea")
    api.store.boards.add("idle", api.store.boards.find("transpose").problem, gpus=("MI355",))  # type: ignore[union-attr]
    monkeypatch.setattr(Submissions, "get", lambda *_: pytest.fail("what was just stored is read again"))
    sent = [client.upload(f"/submission/idle/{gpu}/test", "k.py", GOOD) for gpu in ("mi355", "MI355")]
    queues = [answer.good()["runner_queue"] for answer in sent]
    assert [(one["gpu"], one["queued_jobs"], one["place"]) for one in queues] == [("MI355", 1, 1), ("MI355", 2, 2)]
    for one in queues:
        RunnerQueue.model_validate(one)
    monkeypatch.undo()
    for answer in sent:
        client.delete(answer.good()["details"]["id"])


@pytest.mark.parametrize(
    ("method", "path", "named", "status"),
    [
        ("GET", "/user/submissions", False, 400),
        ("GET", "/user/submissions/1", False, 400),
        ("POST", "/user/join", False, 400),
        ("GET", "/user/submissions/999999", True, 404),
        ("GET", "/user/submissions/x", True, 422),
        ("GET", "/user/submissions?limit=0", True, 422),
        ("GET", "/user/submissions?limit=101", True, 422),
        ("GET", "/user/submissions?leaderboard=nowhere", True, 404),
        ("GET", "/submissions/transpose/GH9000", True, 404),
        ("GET", "/auth/init?provider=carrier-pigeon", True, 422),
        ("GET", "/leaderboards/", True, 404),
        ("GET", "/nowhere", True, 404),
        ("PATCH", "/leaderboards", True, 405),
        ("GET", "/gpus/%00", True, 404),
    ],
)
def test_every_failure_is_one_text(api: ServedApi, method: str, path: str, named: bool, status: int) -> None:
    client = api.client("ada" if named else None)
    answer = client.call(method, path, {"code": "x"} if path == "/user/join" else None)
    assert answer.status == status, answer.body
    with pytest.raises(ClientDied):
        answer.good()


@pytest.mark.parametrize(
    ("path", "name", "source", "status", "says"),
    [
        ("/submission/transpose/GH9000/test", "k.py", GOOD, 404, "GH9000"),
        ("/submission/nowhere/H100/test", "k.py", GOOD, 404, "nowhere"),
        ("/submission/transpose/H100/guess", "k.py", GOOD, 400, "guess"),
        ("/submission/transpose/H100/test", "k.rs", GOOD, 400, "must end in"),
        ("/submission/transpose/H100/test", "k.py", b" \n", 400, "empty"),
        ("/submission/transpose/H100/test", "k.py", b"\xff\xfe", 400, "UTF-8"),
        ("/submission/transpose/H100/test", "k.py", b"#!POPCORN leaderboard other\n" + GOOD, 400, "other"),
        ("/transpose/GH9000/profile", "k.py", GOOD, 404, "GH9000"),
    ],
)
def test_a_refused_upload_says_why(api: ServedApi, path: str, name: str, source: bytes, status: int, says: str) -> None:
    with pytest.raises(ClientDied, match=says) as died:
        api.client("ada").upload(path, name, source).good()
    assert died.value.status == status


def test_an_unknown_or_revoked_token_is_401(api: ServedApi) -> None:
    client = api.client("mia")
    assert client.submissions("transpose") == []
    assert client.cli_id is not None and api.store.tokens.revoke_secret(client.cli_id)
    assert client.call("GET", "/user/submissions").status == 401
    client.cli_id = "nobody's"
    assert client.call("GET", "/user/submissions").status == 401


def test_the_inputs_of_a_board_from_a_directory_are_tried_as_well(api: ServedApi, tmp_path: Path) -> None:
    faulty = tmp_path / "faulty.py"
    faulty.write_text(
        'TESTS = [{"n": 3, "seed": 1}]\ndef generate_input(n, seed):\n    return [lambda: n]\n'
        "def ref_kernel(data):\n    return 1\ndef check_implementation(data, output):\n    return True, ''\n"
    )
    host = api.host()
    with pytest.raises(ClientDied, match=r"data\[0\] is a function, which can't be sent") as died:
        host.host("POST", "/admin/leaderboards", {"directory": str(faulty)})
    assert died.value.status == 400
    assert "faulty" not in [row["name"] for row in host.leaderboards()]


def test_hosts_calls(api: ServedApi, ranked: tuple[Popcorn, int], tmp_path: Path) -> None:
    host = api.host()
    # pause
    assert host.host("POST", "/admin/stop") == {"status": "ok", "accepts_jobs": False}
    with pytest.raises(ClientDied, match="paused") as died:
        api.client("ada").submit("transpose", "H100", "test", "k.py", GOOD)
    assert died.value.status == 503
    assert host.host("POST", "/admin/start") == {"status": "ok", "accepts_jobs": True}
    # submissions
    number = ranked[1]
    shown = host.host("GET", f"/admin/submissions/{number}")
    HostsSubmissionTold.model_validate(shown)
    assert shown["submission"]["user_name"] == "ada"
    assert number in host.host("GET", "/admin/leaderboards/transpose/submissions?limit=100")["submission_ids"]
    stats = host.host("GET", "/admin/stats?last_day_only=true&leaderboard_name=transpose")
    Stats.model_validate(stats)
    assert stats["stats"]["verdicts"]["passed"] >= 1 and stats["stats"]["gpus"]["H100"]["gpu_s"] > 0
    # a ban takes off the board, and is lifted again
    user = shown["submission"]["user_id"]
    assert host.host("POST", f"/admin/ban/{user}") == {"status": "ok", "user_id": user, "banned": True}
    assert not [r for r in host.call("GET", "/submissions/transpose/H100").good() if r["user_name"] == "ada"]
    with pytest.raises(ClientDied) as died:
        ranked[0].submit("transpose", "H100", "test", "k.py", GOOD)
    assert died.value.status == 403
    assert host.host("DELETE", f"/admin/ban/{user}")["banned"] is False
    assert [r for r in host.call("GET", "/submissions/transpose/H100").good() if r["user_name"] == "ada"]
    assert host.call("POST", "/admin/ban/999999", admin=True).status == 404
    # a board from a directory
    made = tmp_path / "scan"
    made.mkdir()
    for file in (Path(__file__).parents[2] / "examples/transpose").glob("*.*"):
        (made / file.name).write_bytes(file.read_bytes())
    assert host.host("POST", "/admin/leaderboards", {"directory": str(made)}) == {"status": "ok", "leaderboard": "scan"}
    assert host.call("POST", "/admin/leaderboards", {"directory": str(made)}, admin=True).status == 400
    told = host.host("POST", "/admin/leaderboards/SCAN/visibility", {"visibility": "closed"})
    assert told == {"status": "ok", "leaderboard": "scan", "visibility": "closed"}
    assert "scan" not in [row["name"] for row in api.client("ada").leaderboards()]
    assert host.host("DELETE", "/admin/leaderboards/scan") == {"status": "ok", "leaderboard": "scan", "force": False}
    assert host.call("DELETE", "/admin/leaderboards/transpose", admin=True).status == 400
    assert host.call("DELETE", "/admin/leaderboards/scan", admin=True).status == 404
    # limits
    limit = {"mode_category": "test", "max_submissions_per_hour": 1}
    assert host.host("PUT", "/admin/leaderboards/transpose/rate-limits", limit)["rate_limit"] == {
        "leaderboard": "transpose", **limit
    }  # fmt: skip
    assert len(host.host("GET", "/admin/leaderboards/transpose/rate-limits")["rate_limits"]) == 1
    client = api.client("nat")
    client.delete(client.submit("transpose", "A100", "test", "k.py", GOOD))
    answer = client.upload("/submission/transpose/A100/benchmark", "k.py", GOOD)
    assert answer.status == 429 and 0 < int(answer.headers["retry-after"]) <= 3600
    with pytest.raises(ClientDied, match="Try again after"):
        answer.good()
    assert client.upload("/submission/transpose/A100/leaderboard", "k.py", GOOD).status == 202
    host.host("DELETE", "/admin/leaderboards/transpose/rate-limits/test")
    assert host.call("DELETE", "/admin/leaderboards/transpose/rate-limits/test", admin=True).status == 404
    # what was done is known
    acts = [row["act"] for row in host.host("GET", "/admin/audit")["audit"]]
    assert {"pause", "resume", "ban", "unban", "create_board", "delete_board", "rate_limit", "visibility"} <= set(acts)
    # removal
    (line,) = client.submissions("transpose")
    assert host.host("DELETE", f"/admin/submissions/{line['id']}") == {"status": "ok", "submission_id": line["id"]}
    assert client.submissions("transpose") == []


def test_the_hosts_calls_are_shut_without_the_right_bearer(api: ServedApi, database_url: str, tmp_path: Path) -> None:
    spec = json.loads(api.client(None).call("GET", "/openapi.json").body)
    admin = [(method, path) for path, row in spec["paths"].items() if path.startswith("/admin") for method in row]
    assert len(admin) >= 20
    staff = api.client("olga", role="staff")
    with served(database_url, tmp_path, admin=None) as shut:
        callers = [
            (shut.url, "None"), (shut.url, ""), (api.url, "None"), (api.url, "guess"),
            (api.url, api.client("ada").cli_id),
        ]  # fmt: skip
        for url, bearer in callers:
            for method, path in admin:
                client = Popcorn(url=url, admin=bearer)
                sent: dict[str, str] | None = {} if method in ("post", "put", "patch") else None
                answer = client.call(method.upper(), path.replace("{", "").replace("}", ""), sent, admin=True)
                client.hang_up()
                assert answer.status in (401, 422), (bearer, method, path, answer.body)
                numbered = any(one in path for one in ("_id}", "{script}", "category"))
                assert answer.status == 401 or sent is not None or numbered
    olga = Popcorn(url=api.url, admin=staff.cli_id)
    assert olga.host("POST", "/admin/start")["accepts_jobs"] is True
    assert olga.host("GET", "/admin/audit?limit=1")["audit"][0]["by"] == "olga"
    olga.hang_up()
