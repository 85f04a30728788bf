"""The fleet by text and by a pyslurm helper: one contract. The transcript and the two texts were taken at one moment
from a Slurm 24.11.5 and a helper with pyslurm 24.11.0; `make test-pyslurm` holds a real helper to it on a login node.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from kbslurm.backends.slurm.call_budget import CallBudget
from kbslurm.backends.slurm.commands import Commands
from kbslurm.backends.slurm.doctor import login_node
from kbslurm.backends.slurm.fleet import (
    FLAGS,
    HELPER,
    PyslurmFleet,
    TextFleet,
    fleet_reader,
    gpus_in,
    nodes_in,
    reservations_in,
    state_word,
)
from kbslurm.config import sites
from kbslurm.domain.site import Fleet
from kbslurm.errors import BackendRefused, BackendTrouble

DATA = Path(__file__).resolve().parents[1] / "golden" / "data" / "fleet-24.11"
PLAIN = """\
name = "here"
[paths]
shared_root = "{root}"
[slurm]
bin_dir = "{bin_dir}"
pyslurm_python = "{python}"
[gpus.H100]
image = "cuda.sif"
"""
REPLAY = """\
#!/bin/sh
while read -r line; do
    case $line in
        *version*) echo '{version}' ;;
        *fleet*) cat {transcript} ;;
    esac
done
"""


def replaying(folder: Path, *, version: str = '{"pyslurm": "24.11.0", "slurm": "24.11.5"}') -> Path:
    """An interpreter that isn't one: it answers with what a real helper once said."""
    file = folder / "python"
    file.write_text(REPLAY.format(version=version, transcript=shlex.quote(str(DATA / "pyslurm.jsonl"))))
    file.chmod(0o755)
    return file


def by_text() -> Fleet:
    return Fleet(
        nodes=nodes_in((DATA / "sinfo.txt").read_text()),
        reservations=reservations_in((DATA / "reservations.txt").read_text()),
    )


def same(one: Fleet, other: Fleet) -> None:
    assert one.nodes == other.nodes
    assert one.reservations == other.reservations


def test_both_readers_say_the_same_of_the_same_moment(tmp_path: Path) -> None:
    told = PyslurmFleet(site="here", argv=(str(replaying(tmp_path)),)).read()
    text = by_text()
    same(told, text)
    assert (told.reader, told.version) == ("pyslurm", "24.11.5")
    assert [node.name for node in text.nodes] == ["a1", "a2", "h1", "h2", "m1"]
    assert text.gpus("h100") == (2, 6)
    assert text.gpus("1g.10gb") == (0, 0)
    assert [one.name for one in text.reservations] == ["contest"]


@pytest.mark.parametrize(
    "body",
    [
        "exit 1",
        "echo garbage",
        "echo '[1]'",
        "echo '{\"nodes\": []}'",
        'echo \'{"error": "slurm_init failed"}\'',
        "kill -9 $$",
        "sleep 60",
        "head -c 100000 /dev/zero",
    ],
)
def test_whatever_the_helper_does_is_a_clusters_trouble(tmp_path: Path, body: str) -> None:
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    with pytest.raises(BackendTrouble):
        PyslurmFleet(site="here", argv=(str(file),), answer_s=2.0).read()
    with pytest.raises(BackendTrouble):
        PyslurmFleet(site="here", argv=(str(tmp_path / "nothing"),)).read()


@pytest.mark.parametrize(
    ("version", "reader"),
    [
        ('{"pyslurm": "24.11.0", "slurm": "24.11.5"}', PyslurmFleet),
        ('{"pyslurm": "25.11.2", "slurm": "25.11.4"}', TextFleet),
        ('{"error": "no"}', TextFleet),
    ],
)
def test_pyslurm_serves_only_the_slurm_that_it_was_built_for(tmp_path: Path, version: str, reader: type) -> None:
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\necho 'slurm-wlm 24.11.5'\n")
    sinfo.chmod(0o755)
    file = tmp_path / "here.toml"
    python = replaying(tmp_path, version=version)
    file.write_text(PLAIN.format(root=tmp_path, bin_dir=tmp_path, python=python))
    site = sites.load(file)
    assert isinstance(fleet_reader(site, Commands(site)), reader)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('echo \'{"pyslurm": "25.11.2", "slurm": "x"}\'', "pyslurm 25.11.2 is for Slurm 25.11, and this is 24.11.5"),
        ("exec nothing-of-that-name", "not found"),
        ("echo 'slurm_init: no configuration' >&2; exit 1", "without an answer: slurm_init: no configuration"),
        (f'exec {shlex.quote(sys.executable)} "$@"', "No module named 'pyslurm'"),
        (None, "Permission denied"),
    ],
)
def test_why_pyslurm_isnt_used_is_known(tmp_path: Path, body: str | None, why: str) -> None:
    python, sinfo, scontrol = tmp_path / "python", tmp_path / "sinfo", tmp_path / "scontrol"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o644 if body is None else 0o755)
    sinfo.write_text("#!/bin/sh\n[ \"$1\" != -V ] || echo 'slurm-wlm 24.11.5'\n")
    scontrol.write_text("#!/bin/sh\n")
    for tool in (sinfo, scontrol):
        tool.chmod(0o755)
    file = tmp_path / "here.toml"
    file.write_text(PLAIN.format(root=tmp_path, bin_dir=tmp_path, python=python))
    site = sites.load(file)
    fleet = fleet_reader(site, Commands(site)).read()
    assert fleet.reader == "text" and why in fleet.reader_why
    (told,) = login_node.reader_findings(site, Commands(site))
    assert told.grade == "CAUTION" and why in told.text and "pyslurm_python" in told.remedy


def test_an_interpreter_may_be_a_wrapper_that_says_where_pyslurm_is(tmp_path: Path) -> None:
    """PYTHONPATH set by a wrapper counts, and nothing of ours beside the helper can be imported by mistake."""
    module = tmp_path / "lib" / "pyslurm.py"
    module.parent.mkdir()
    module.write_text(
        "import importlib.util\n__version__ = '24.11.0'\ndef slurm_api_version(): return (24, 11, 5)\n"
        "assert importlib.util.find_spec('fleet') is None\n"
    )
    wrapper = tmp_path / "python"
    wrapper.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(module.parent))} exec {shlex.quote(sys.executable)} "$@"\n'
    )
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\necho 'slurm-wlm 24.11.5'\n")
    for tool in (wrapper, sinfo):
        tool.chmod(0o755)
    file = tmp_path / "here.toml"
    file.write_text(PLAIN.format(root=tmp_path, bin_dir=tmp_path, python=wrapper))
    site = sites.load(file)
    assert isinstance(fleet_reader(site, Commands(site)), PyslurmFleet)
    assert [one.grade for one in login_node.reader_findings(site, Commands(site))] == ["PASS"]


def test_what_pyslurm_asks_counts_as_commands_do(tmp_path: Path) -> None:
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\necho 'slurm-wlm 24.11.5'\n")
    sinfo.chmod(0o755)
    file = tmp_path / "here.toml"
    file.write_text(PLAIN.format(root=tmp_path, bin_dir=tmp_path, python=replaying(tmp_path)))
    site = sites.load(file)
    budget = CallBudget(60.0, lambda: 1000.0)
    commands = Commands(site, before=lambda: budget.wait("here", wait_s=0.0), heard=lambda _: budget.spend())
    reader = fleet_reader(site, commands)
    assert isinstance(reader, PyslurmFleet) and budget.spent() == 2, "its version, and sinfo's"
    assert reader.read().reader == "pyslurm"
    assert (budget.spent(), commands.calls["pyslurm"]) == (5, 4), "nodes, partitions, reservations"
    budget.spend(60)
    with pytest.raises(BackendRefused, match="used up"):
        reader.read()
    assert budget.spent() == 65


def test_the_helper_never_ends_without_a_word() -> None:
    """This interpreter has no pyslurm: the helper says so in its protocol."""
    found = PyslurmFleet(site="here", argv=(sys.executable, "-I", str(HELPER)))
    with pytest.raises(BackendTrouble, match="ModuleNotFoundError"):
        found.read()


def test_the_transcript_is_one_line_of_the_protocol() -> None:
    (line,) = (DATA / "pyslurm.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert set(told) == {"slurm", "nodes", "reservations"}


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:h100:4(S:0-1)", {"h100": 4}),
        ("gpu:2", {"gpu": 2}),
        ("gpu:1g.10gb:2(IDX:0-1),gpu:a100:1(S:0)", {"1g.10gb": 2, "a100": 1}),
        ("gpu:nvidia_h100_80gb_hbm3_1g.10gb:7", {"nvidia_h100_80gb_hbm3_1g.10gb": 7}),
        ("gpu:a100:0(IDX:N/A)", {"a100": 0}),
        ("(null)", {}),
        ("shard:8,craynetwork:4", {}),
    ],
)
def test_gpus_are_read_from_slurms_words(gres: str, gpus: dict[str, int]) -> None:
    assert gpus_in(gres) == gpus


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("idle", "idle"),
        ("MIXED", "mixed"),
        ("drained*", "drained"),
        ("IDLE+DRAIN", "drained"),
        ("ALLOCATED+DRAIN", "draining"),
        ("DOWN+NOT_RESPONDING", "down"),
        ("down*", "down"),
        ("IDLE+MAINT", "maint"),
        ("IDLE+CLOUD", "idle"),
    ],
)
def test_a_nodes_state_is_one_word_however_it_is_said(said: str, word: str) -> None:
    assert state_word(said) == word


@pytest.mark.pyslurm
def test_a_real_helper_on_this_clusters_login_node_says_what_the_commands_say(tmp_path: Path) -> None:
    python = os.environ["KBSLURM_PYSLURM_PYTHON"]
    file = tmp_path / "here.toml"
    file.write_text(PLAIN.format(root=tmp_path, bin_dir="", python=python))
    commands = Commands(sites.load(file))
    helper = PyslurmFleet(site="here", argv=(python, *FLAGS, str(HELPER)))
    built_for, runs = helper.version()
    assert built_for.split(".")[:2] == runs.split(".")[:2] == TextFleet(commands=commands).version().split(".")[:2]
    same(helper.read(), TextFleet(commands=commands).read())
