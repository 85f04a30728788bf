"""A profile's whole way: submitted for one benchmark, drawn by a stand-in for Nsight Compute on the real harness,
stored, and shown on the page, by the CLI, as JSON, and to popcorn-cli's `--profile-brev`."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.backends.local.backend import LocalBackend
from kbslurm.client.http import Client
from kbslurm.config import shared_folders
from kbslurm.contract.profiling import ProfileAccepted, ProfileJob
from kbslurm.daemon.loop import Daemon
from kbslurm.errors import Invalid
from kbslurm.flow.place import Place
from kbslurm.flow.submit import accept
from tests.command_line import CommandLine
from tests.flow.stage import QUICK, running
from tests.flow.test_pages import browsing
from tests.popcorn.client import ClientDied
from tests.popcorn.served_api import GOOD, ServedApi, served
from tests.services import GXX, USER_NAMESPACES, needs
from tests.standin import profilers

pytestmark = needs(GXX, USER_NAMESPACES)


@pytest.fixture
def api(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedApi]:
    for name, value in profilers.profiler(tmp_path / "toolkit", "ncu").items():
        if name != "KBSLURM_PROFILER":
            monkeypatch.setenv(name, value)
    place = tmp_path / "served"
    with served(database_url, place) as built:
        backend = LocalBackend(
            place / "attempts", {"H100": 1}, shared_folders.eval_dir(), Path(sys.executable), profiler="ncu"
        )
        here = Place(backend=backend, poll_s=1.0, grace_s=0.0, sweep_gap_s=0.2, patience_s=300.0)
        with running(Daemon(built.store, [here], timing=QUICK)):
            yield built


def test_one_benchmark_s_profile_is_shown_wherever_its_author_looks(api: ServedApi, tmp_path: Path) -> None:
    client = api.client("ada")
    with Client(api.url, token=client.cli_id) as ours:
        number = ours.submit_to_many("transpose", ["H100"], "profile", "k.py", GOOD, benchmark=0).submission_id
    client.wait(number)
    token = {"KBSLURM_URL": api.url, "KBSLURM_TOKEN": client.cli_id or ""}
    kbslurm = CommandLine(cwd=tmp_path, env=token)

    told = kbslurm("profile", str(number), "--json")
    assert told.code == 0, told.err
    (run,) = told.json()["profiles"]
    assert [(one["benchmark"], one["tool"]) for one in run["digests"]] == [(0, "cprofile"), (0, "ncu")]
    counters = run["digests"][1]
    assert len(counters["limits"]) == 3 and "bound by memory" in counters["limits"][0]
    assert counters["kernels"][0]["metrics"]["occupancy_pct"] == 71.02
    names = {row["name"] for row in told.json()["artifacts"]}
    assert names >= {f"benchmark-0.ncu-{one}" for one in ("rep", "details.txt", "details.csv", "raw.csv", "source.csv")}
    assert not any(name.startswith("benchmark-1") for name in names)

    shown = kbslurm("profile", str(number), "--out", "drawn")
    assert "Nsight Compute" in shown.out and "71 % of warps active" in shown.out
    assert (tmp_path / "drawn" / f"{number}-H100-benchmark-0.ncu-rep").read_bytes().startswith(b"NVR")
    followed = kbslurm("watch", str(number), "--json")
    assert followed.json()["runs"][0]["report"]["digests"] == run["digests"]
    assert "bound by memory" in kbslurm("watch", str(number)).out

    with browsing(api, "ada") as ada:
        page = ada.get(f"/s/{number}").text
        assert "is bound by memory" in page and "benchmark-0.ncu-rep" in page
        assert "void gemm_kernel&lt;(int)128, &#34;row&#34;, float&gt;" in page


def test_popcorn_s_profile_service_is_here_too(api: ServedApi, tmp_path: Path) -> None:
    client = api.client("dora")
    accepted = client.profile_brev("transpose", "k.py", b"#!POPCORN gpu H100\n" + GOOD, index=1)
    ProfileAccepted.model_validate(accepted)
    job = client.profiled(accepted["job_id"])
    ProfileJob.model_validate(job)
    (made,) = job["artifacts"]
    assert made["name"] == "profile.1-H100-cols-240-rows-480-seed-8.zip"
    assert job["digests"][1]["gpu"] == "H100" and job["digests"][1]["limits"]
    file = client.call("GET", made["url"])
    with zipfile.ZipFile(io.BytesIO(file.body)) as archive:
        inside = archive.namelist()
    for ending in (".ncu-rep", "ncu-details.txt", "ncu-details.csv"):  # the client extracts these
        assert any(name.endswith(ending) for name in inside), inside
    other = api.client("eve")
    assert [other.call("GET", path).status for path in (f"/jobs/{job['job_id']}", made["url"])] == [403, 403]
    assert client.call("GET", made["url"][:-1] + "7").status == 404
    with pytest.raises(ClientDied, match="has no benchmark 2") as died:
        client.profile_brev("transpose", "k.py", GOOD, index=2)
    assert died.value.status == 400
    for wrong in ("x", "-1", "1" * 30):
        with pytest.raises(ClientDied, match="isn't a number") as died:
            client.profile_brev("transpose", "k.py", GOOD, index=wrong)
        assert died.value.status == 400


def test_a_benchmark_is_chosen_for_profiles_only_and_must_exist(api: ServedApi, tmp_path: Path) -> None:
    store, now = api.store, api.now
    person = store.people.ensure("ada").id
    one = "mode test can't be limited to one benchmark"
    for mode, benchmark, words in (("test", 0, one), ("profile", 2, "has no benchmark 2")):
        with pytest.raises(Invalid, match=words):
            accept(store.intake, person, "transpose", "k.py", GOOD, mode, ["A100"], now, benchmark=benchmark)  # type: ignore[arg-type]
    assert store.submissions.newest(person=person, limit=9) == []
    said = CommandLine(cwd=tmp_path)(
        "try", str(shared_folders.path("examples") / "transpose"), str(_file(tmp_path)), "--benchmark", "0"
    )
    assert said.code == 2 and "mode profile only" in said.err


def test_a_try_draws_the_same_profile_on_one_s_own_machine(tmp_path: Path) -> None:
    env = {name: value for name, value in profilers.profiler(tmp_path / "toolkit", "rocprof").items() if name != "PATH"}
    done = CommandLine(cwd=tmp_path, env=env)(
        "try", str(shared_folders.path("examples") / "transpose"), str(_file(tmp_path)), "--mode", "profile",
        "--benchmark", "1", "--profiler", "rocprof", "--profiles", "drawn", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert [(one["benchmark"], one["tool"]) for one in done.json()["digests"]] == [(1, "cprofile"), (1, "rocprof")]
    assert (tmp_path / "drawn/benchmark-1.pftrace").read_bytes() == b"\x0a\x05trace"
    json.loads((tmp_path / "drawn/benchmark-1.functions.json").read_text())


@needs(GXX, USER_NAMESPACES)
def test_the_source_view_has_the_lines_of_a_compiled_submission(tmp_path: Path) -> None:
    """They were compiled in another place than the one where they run."""
    here = Path(__file__).parents[1] / "problems/cu_one_file"
    mine = next((here / "submissions/accepted").iterdir())
    env = {name: value for name, value in profilers.profiler(tmp_path / "toolkit", "ncu").items() if name != "PATH"}
    done = CommandLine(cwd=tmp_path, env=env)(
        "try", str(here / "reference.cu"), str(mine), "--mode", "profile", "--benchmark", "0", "--profiler", "ncu",
        "--profiles", "drawn", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err + done.out
    view = (tmp_path / "drawn/benchmark-0.ncu-source.csv").read_text()
    assert '/sources/submission.cu"' in view and "custom_kernel" in view
    (digest,) = [one for one in done.json()["digests"] if one["tool"] == "ncu"]
    assert any("of the samples are at " in hint for hint in digest["hints"]), digest["hints"]


def _file(folder: Path) -> Path:
    path = folder / "k.py"
    path.write_bytes(GOOD)
    return path
