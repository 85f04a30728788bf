"""What slurmrestd is told of a job, and what is read from it: without a Slurm."""

from __future__ import annotations

import base64
import json
import shlex
import stat
from pathlib import Path

import pytest

from kbslurm.backends.slurm.rest import text
from kbslurm.backends.slurm.rest.connection import Connection, Unreached
from kbslurm.backends.slurm.rest.job_fields import Untold, fields_of
from kbslurm.backends.slurm.rest.token import NoToken, TokenSource
from kbslurm.config import shared_folders, sites
from kbslurm.domain.run import JobName
from kbslurm.domain.site import Submission
from kbslurm.flow.script import script_for

KEPT_TO_THEMSELVES = {"sherlock": "gpu_cmode"}  # an option of the centre's own plugin


def token(until: float, made_at: float = 0.0) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": until, "iat": made_at, "sun": "kb"}).encode()).decode()
    return f"eyJhbGciOiJIUzI1NiJ9.{claims.rstrip('=')}.c2lnbmF0dXJl"


def source(tmp_path: Path, now: list[float], **told: str) -> TokenSource:
    return TokenSource(Submission(via="rest", url="unix:/s", **told), {"PATH": "/usr/bin:/bin"}, lambda: now[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["alliance", "bouchet", "bunya", "della", "engaging", "example", "sherlock"])
def test_every_shipped_site_could_be_put_to_slurmrestd(name: str, tmp_path: Path) -> None:
    site = sites.load(shared_folders.path("site-configs") / f"{name}.toml")
    for gpu, kind in site.gpus.items():
        script = script_for(
            site, name=JobName("kb-test"), gpu=gpu, directory=tmp_path, harness=tmp_path, supervisor="0" * 64,
            time_limit_s=100, memory_bytes=1 << 30, templates=shared_folders.path("sbatch_templates"),
            avoid_nodes=("n1", "n2"),
        )  # fmt: skip
        if name in KEPT_TO_THEMSELVES:
            with pytest.raises(Untold, match=KEPT_TO_THEMSELVES[name]):
                fields_of(script)
            continue
        job = fields_of(script)
        assert job["script"] == script
        assert (job["name"], job["requeue"], job["excluded_nodes"]) == ("kb-test", False, ["n1", "n2"])
        assert (job["minimum_nodes"], job["maximum_nodes"], job["tasks"]) == (1, 1, 1)
        assert job["minimum_cpus"] == job["cpus_per_task"] == kind.cpus
        assert job["memory_per_node"]["number"] > 1000
        assert job["time_limit"]["number"] > 1
        assert any(value.startswith("gres/gpu") for key, value in job.items() if key.startswith("tres_per"))
        assert job["standard_output"] == f"{tmp_path}/log"


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("--gres=gpu:h100:1", "tres_per_node", "gres/gpu:h100:1"),
        ("--gpus=h100:2", "tres_per_job", "gres/gpu:h100:2"),
        ("--gpus=1", "tres_per_job", "gres/gpu:1"),
        ("--gpus-per-node 2", "tres_per_node", "gres/gpu:2"),
        ("--mem=2G", "memory_per_node", {"set": True, "infinite": False, "number": 2048}),
        ("--time=1-00:30:01", "time_limit", {"set": True, "infinite": False, "number": 1471}),
        ("--time=15", "time_limit", {"set": True, "infinite": False, "number": 15}),
        ("--exclusive", "shared", ["none"]),
        ("--mail-type=fail,end", "mail_type", ["FAIL", "END"]),
        ("--comment='two words'", "comment", "two words"),
    ],
)
def test_an_option_becomes_a_field(line: str, field: str, value: object) -> None:
    assert fields_of(f"#!/bin/sh\n#SBATCH {line}\ntrue\n#SBATCH --nonsense\n")[field] == value


@pytest.mark.parametrize("line", ["--gpu_cmode=shared", "--mem=lots", "--export=ALL", "-p gpu", "--nodes=two"])
def test_an_option_that_cant_be_told_is_never_left_out(line: str) -> None:
    with pytest.raises(Untold, match="slurmrestd"):
        fields_of(f"#!/bin/sh\n#SBATCH {line}\n")


def test_of_a_jobs_words_the_one_is_shown_that_squeue_shows() -> None:
    assert text.state(["COMPLETED", "COMPLETING"]) == "COMPLETING"
    assert text.state(["RUNNING", "CONFIGURING"]) == "CONFIGURING"
    assert text.state(["PENDING", "LAUNCH_FAILED"]) == "PENDING"
    assert text.state([]) == "?"
    assert text.number({"set": False, "infinite": False, "number": 5}) is None


def test_a_token_is_renewed_by_its_command_before_it_ends(tmp_path: Path) -> None:
    made, program, now = tmp_path / "made", tmp_path / "make", [0.0]
    program.write_text(f"#!/bin/sh\necho x >>{shlex.quote(str(made))}\necho SLURM_JWT={token(1000.0)}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    tokens = source(tmp_path, now, token_command=shlex.quote(str(program)))
    assert (tokens.current().user, tokens.current().until) == ("kb", 1000.0)
    assert made.read_text().count("x") == 1, "one is enough while it lasts"
    now[0] = 900.0
    tokens.current()
    assert made.read_text().count("x") == 2
    tokens.refused()
    tokens.current()
    assert made.read_text().count("x") == 3
    now[0] = 1001.0
    with pytest.raises(NoToken, match="expired at 1970-"):
        tokens.current()


def test_a_token_in_a_file_is_read_each_time_and_what_isnt_one_is_never_repeated(tmp_path: Path) -> None:
    file, now = tmp_path / "token", [0.0]
    file.write_text(token(10.0))
    tokens = source(tmp_path, now, token_file=str(file))
    assert tokens.current().until == 10.0
    file.write_text(f"SLURM_JWT={token(20.0)}\n")
    assert tokens.current().until == 20.0
    assert token(20.0) not in repr(tokens.current())
    file.write_text("hunter2")
    with pytest.raises(NoToken) as none:
        tokens.current()
    assert "gives no token" in str(none.value)
    assert "hunter2" not in str(none.value)
    with pytest.raises(NoToken, match="set SLURM_JWT"):
        source(tmp_path, now).current()


def test_a_token_never_crosses_a_network_in_clear_text(tmp_path: Path) -> None:
    """Also where no site's file was checked before, as with `site init`: nothing is even looked up."""
    (tmp_path / "token").write_text(token(1000.0))
    far = Submission(via="rest", url="http://far.invalid:6820", token_file=str(tmp_path / "token"))
    with pytest.raises(Unreached, match="clear text; use https"):
        Connection(far, TokenSource(far, {}, lambda: 0.0)).ask("GET", "ping/", timeout_s=5)


def test_a_token_that_is_about_to_end_is_used_on_while_there_is_no_other(tmp_path: Path) -> None:
    """Whoever makes them may be away for a while: the last one is still valid."""
    now, file = [0.0], tmp_path / "made"
    file.write_text(token(1000.0))
    tokens = source(tmp_path, now, token_command=f"cat {file}")
    assert tokens.current().until == 1000.0
    file.unlink()
    now[0] = 990.0
    assert tokens.current().until == 1000.0
    now[0] = 1001.0
    with pytest.raises(NoToken, match="ended with status 1"):
        tokens.current()
    file.write_text(token(2000.0))
    assert tokens.current().until == 2000.0


@pytest.mark.parametrize(
    "said",
    [
        "scontrol: error: Unable to contact slurm controller (connect failure)",
        "scontrol: error: Socket timed out on send/recv operation",
    ],
)
def test_a_controller_that_makes_no_token_is_told_so(said: str, tmp_path: Path) -> None:
    tool = tmp_path / "scontrol"
    tool.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    tool.chmod(0o755)
    with pytest.raises(NoToken, match=r"controller, which makes the tokens, doesn't answer \([US]"):
        source(tmp_path, [0.0], token_command=f"{tool} token").current()
