"""`kbslurm place init`, `show` and `check`: the files that describe places, and whether they work."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kbslurm.config import settings
from tests.command_line import CommandLine
from tests.contract.test_ray_api import answering, told
from tests.services import ROOT, needs

BEFORE = """\
# our competition
[server]
listen = "127.0.0.1:8000"   # behind nginx

[github]   # for signing in
client_id = "abc"

[policy.places.github]
role = "overflow"
"""


@pytest.fixture
def kbslurm(tmp_path: Path, database_url: str) -> CommandLine:
    return CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})


def test_github_is_added_to_its_table_and_nothing_else_changes(kbslurm: CommandLine) -> None:
    file = kbslurm.cwd / "kbslurm.toml"
    file.write_text(BEFORE.replace('[policy.places.github]\nrole = "overflow"\n', ""))
    file.chmod(0o640)
    done = kbslurm("place", "init", "github", "--repository", "lab/runners", "--gpu", "H100=self-hosted,h100", "--yes")
    assert done.code == 0, done.err
    added = 'repository = "lab/runners"\ngpus = { H100 = ["self-hosted", "h100"] }\n'
    head, tail = BEFORE.split('client_id = "abc"\n')
    assert file.read_text() == head + added + 'client_id = "abc"\n' + tail.split("[policy")[0]
    assert file.stat().st_mode & 0o777 == 0o640
    assert "set GITHUB_TOKEN and KBSLURM_RUN_KEY for the service" in done.out
    config = settings.load(file)
    assert config.github.gpus == {"H100": ("self-hosted", "h100")} and config.server.listen == "127.0.0.1:8000"
    again = kbslurm("place", "init", "github", "--repository", "x/y", "--gpu", "H100=a", "--yes")
    assert again.code == 2 and "github.repository is already set in" in again.err and "line 6" in again.err
    assert list(kbslurm.cwd.glob(".kbslurm-*")) == []


def test_a_place_is_described_where_there_was_no_file(kbslurm: CommandLine) -> None:
    said = kbslurm("place", "init", "local", "--gpu", "A100=2", "--name", "here", "--staff-only", "--yes", "--json")
    text = '[daemon.local]\nslots = { A100 = 2 }\nname = "here"\nstaff_only = true\n'
    assert said.json()["toml"] == text == (kbslurm.cwd / "kbslurm.toml").read_text()
    assert kbslurm("place", "list", "-o", "name").out == "here\n"
    assert kbslurm("place", "init", "modal", "--gpu", "H100", "--gpu", "B200", "--yes").code == 0
    assert (kbslurm.cwd / "kbslurm.toml").read_text() == (
        f"{text}\n[modal.gpus]\nH100 = {{ slots = 4 }}\nB200 = {{ slots = 4 }}\n"
    )


def test_a_file_behind_a_link_is_changed_there(kbslurm: CommandLine) -> None:
    real, link = kbslurm.cwd / "in git" / "ours.toml", kbslurm.cwd / "kbslurm.toml"
    real.parent.mkdir()
    real.write_text("# ours\n")
    link.symlink_to(real)
    assert kbslurm("place", "init", "local", "--gpu", "A100=2", "--name", "here", "--yes").code == 0
    assert link.is_symlink() and real.read_text().startswith("# ours\n") and "A100 = 2" in real.read_text()


@needs(ROOT)
def test_a_file_keeps_its_owner(kbslurm: CommandLine) -> None:
    file = kbslurm.cwd / "kbslurm.toml"
    file.write_text("# the service's\n")
    file.chmod(0o600)
    os.chown(file, 4711, 4712)
    assert kbslurm("place", "init", "local", "--gpu", "A100=2", "--name", "here", "--yes").code == 0
    found = file.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4711, 4712, 0o600) and "A100" in file.read_text()


def test_a_running_ray_cluster_is_asked_what_it_has(kbslurm: CommandLine) -> None:
    (kbslurm.cwd / "kbslurm.toml").write_text(BEFORE)
    workers = [
        {"state": "ALIVE", "is_head_node": True, "resources_total": {"CPU": 4.0}, "labels": {}},
        {"state": "ALIVE", "is_head_node": False, "resources_total": {"GPU": 2.0, "H100": 2.0}, "labels": {}},
    ]
    with answering(told(200, json.dumps({"data": {"result": {"result": workers}}}))) as url:
        words = ("--name", "eu", "--url", url, "--service-url", "https://kb.example.edu", "--yes")
        said = kbslurm("place", "init", "ray", *words)
    assert said.code == 0 and "seen: 2 × H100" in said.out, said
    assert "set RAY_EU_TOKEN and RAY_EU_KEY for the service" in said.out
    assert (kbslurm.cwd / "kbslurm.toml").read_text().startswith(BEFORE)
    section = settings.load(kbslurm.cwd / "kbslurm.toml").ray["eu"]
    assert section.url == url and section.pool is None
    assert (section.gpus["H100"].resources, section.gpus["H100"].slots) == ({"H100": 1}, 2)
    again = kbslurm("place", "init", "ray", *words)
    assert again.code == 2 and "ray.eu is already set in" in again.err


def test_a_ray_cluster_that_is_to_be_started_tells_how(kbslurm: CommandLine) -> None:
    words = ("--name", "eu", "--provider", "aws", "--gpu", "H100", "--service-url", "https://kb.example.edu", "--yes")
    printed = kbslurm("place", "init", "ray", *words, "--stdout")
    assert printed.code == 0 and not (kbslurm.cwd / "kbslurm.toml").exists()
    said = kbslurm("place", "init", "ray", *words, "--json").json()
    assert said["toml"] == printed.out == (kbslurm.cwd / "kbslurm.toml").read_text()
    assert "kbslurm ray pool eu --out eu.yaml, and ray up eu.yaml" in said["next"]
    assert kbslurm("ray", "pool", "eu").code == 0


def test_stdout_writes_nothing(kbslurm: CommandLine) -> None:
    said = kbslurm("place", "init", "modal", "--gpu", "H100", "--slots", "2", "--stdout")
    assert (said.code, said.out) == (0, "[modal.gpus]\nH100 = { slots = 2 }\n")
    assert not (kbslurm.cwd / "kbslurm.toml").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("github",), "--repository is missing, and there is nobody to ask"),
        (("github", "--repository", "lab/runners", "--yes"), "--gpu is missing"),
        (("github", "--repository", "lab", "--gpu", "H100=x", "--yes"), "'lab' isn't a valid repository"),
        (("github", "--repository", "lab/runners", "--gpu", "H100", "--yes"), "'H100' isn't TYPE=…"),
        (("github", "--repository", "a/b", "--gpu", "H100=,", "--yes"), "nothing is named"),
        (("local", "--gpu", "H100=none", "--yes"), "'none' isn't a number of slots"),
        (("local", "--gpu", "H100=1", "--name", "a b", "--yes"), "'a b' isn't a valid name for a place"),
        (("ray", "--name", "eu"), "--url is missing, and there is nobody to ask"),
        (("ray", "--name", "eu", "--provider", "mars"), "'mars' isn't a provider"),
        (("ray", "--name", "eu", "--url", "ftp://x", "--service-url", "http://h", "--yes"), "ftp://x"),
        (
            ("ray", "--name", "A b", "--provider", "aws", "--service-url", "http://h", "--yes"),
            "'A b' isn't a valid name",
        ),
        (("slurm",), "--name is missing, and there is nobody to ask"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(kbslurm: CommandLine, words: tuple[str, ...], why: str) -> None:
    (kbslurm.cwd / "kbslurm.toml").write_text(BEFORE)
    said = kbslurm("place", "init", *words)
    assert said.code == 2 and why in said.err and "Traceback" not in said.err, said
    assert (kbslurm.cwd / "kbslurm.toml").read_text() == BEFORE


def test_a_table_without_a_header_is_left_to_its_author(kbslurm: CommandLine) -> None:
    (kbslurm.cwd / "kbslurm.toml").write_text('github.client_id = "abc"\n')
    said = kbslurm("place", "init", "github", "--repository", "a/b", "--gpu", "H100=x", "--yes")
    assert said.code == 2 and 'Add these lines to it by hand: repository = "a/b"' in said.err


def configured(kbslurm: CommandLine) -> None:
    site = '[paths]\nshared_root = "/nowhere/kb"\n[gpus.H100]\nrequest = "--gres=gpu:h100:1"\nimage = "cuda.sif"\n'
    (kbslurm.cwd / "site-configs").mkdir()
    (kbslurm.cwd / "site-configs" / "dgx.toml").write_text(f'name = "dgx"\nmax_time = "2h"\n{site}memory = "64G"\n')
    (kbslurm.cwd / "kbslurm.toml").write_text(
        '[daemon.local]\nname = "here"\nslots = { A100 = 1 }\n[sites]\nuse = ["dgx"]\n'
        "[modal.gpus]\nH100 = {}\n[policy.places.modal]\ncost_per_gpu_hour = { H100 = 3.95 }\n"
    )


def test_show_says_where_each_setting_came_from(kbslurm: CommandLine) -> None:
    configured(kbslurm)
    said = kbslurm("place", "show", "dgx", "--json").json()
    rows = {row["key"]: (row["value"], row["from"].rpartition("/")[2]) for row in said["settings"]}
    assert (said["kind"], rows["name"]) == ("slurm", ("dgx", "dgx.toml:1"))
    assert rows["max_time_s"] == ("7200", "dgx.toml:2")
    assert rows["gpus.H100.request"][1] == "dgx.toml:6"
    assert rows["gpus.H100.memory_mb"] == ("65536", "dgx.toml:8")
    assert rows["untrusted"][1] == "default" and rows["policy.places.dgx.role"] == ("none", "default")
    told = kbslurm("place", "show", "MODAL", MODAL_TOKEN_ID="ak-hush", MODAL_TOKEN_SECRET_COMMAND="echo as-hush")
    assert told.code == 0 and "hush" not in told.out
    text = " ".join(told.out.split())
    assert "MODAL_TOKEN_ID ******** $MODAL_TOKEN_ID" in text
    assert "MODAL_TOKEN_SECRET ******** $MODAL_TOKEN_SECRET_COMMAND" in text
    assert "policy.places.modal.cost_per_gpu_hour H100 = 3.95" in text
    unknown = kbslurm("place", "show", "della")
    assert unknown.code == 2 and "dgx" in unknown.err and "here" in unknown.err


def test_check_is_one_table_over_all_places(kbslurm: CommandLine) -> None:
    configured(kbslurm)
    said = kbslurm("place", "check", "--all", "--json")
    found = said.json()["findings"]
    assert said.code == 1
    by_place = {one["where"].split(" ")[0] for one in found}
    assert by_place == {"dgx", "here", "modal"}
    missing = [one for one in found if one["where"] == "modal"]
    assert [(one["name"], one["grade"]) for one in missing] == [("secret", "FAIL")] * 2
    assert "MODAL_TOKEN_ID isn't set" in missing[0]["text"]
    assert [one["grade"] for one in found if one["where"] == "here" and one["name"] == "state folder"] == ["PASS"]
    one = kbslurm("place", "check", "here")
    assert "isolation" in one.out and "dgx" not in one.out
    for words in ((), ("here", "--all")):
        assert kbslurm("place", "check", *words).code == 2


def test_doctor_tells_of_secrets_that_are_missing_unreadable_or_open_to_others(kbslurm: CommandLine) -> None:
    configured(kbslurm)
    token = kbslurm.cwd / "discord"
    token.write_text("hush-hush")
    token.chmod(0o644)
    gone = kbslurm.cwd / "missing"
    (kbslurm.cwd / ".env").write_text("KBSLURM_BOT_TOKEN=hush-hush\n")
    (kbslurm.cwd / ".env").chmod(0o640)
    said = kbslurm(
        "doctor", "--json", DISCORD_TOKEN_FILE=str(token), MODAL_TOKEN_ID_COMMAND="false", GITHUB_TOKEN_FILE="missing"
    )
    told = {one["text"]: one["grade"] for one in said.json()["findings"] if one["name"] == "secret"}
    assert told == {
        "MODAL_TOKEN_ID: the command in MODAL_TOKEN_ID_COMMAND failed (exit code 1)": "FAIL",
        "MODAL_TOKEN_SECRET isn't set": "FAIL",
        "DATABASE_URL, in the environment": "PASS",
        f"DISCORD_TOKEN: {token} can be read by its group and everybody (mode 0644)": "CAUTION",
        f"GITHUB_TOKEN: {gone}: the file in GITHUB_TOKEN_FILE can't be read (No such file or directory)": "FAIL",
        "KBSLURM_BOT_TOKEN, in the environment": "PASS",
        f".env: {kbslurm.cwd / '.env'} can be read by its group (mode 0640)": "CAUTION",
    }
    assert "hush" not in said.out
