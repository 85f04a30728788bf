"""What doctor makes of what it is told: a real cluster's own words, tables of facts, and this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

import pytest

from kbslurm.backends.slurm.doctor import (
    gpu_types,
    limits,
    login_node,
    node,
    node_facts,
    partitions,
    probe_script,
    scheduler_settings,
    shared_root,
    site_file,
    survey,
)
from kbslurm.backends.slurm.doctor.node_facts import Sight
from kbslurm.backends.slurm.doctor.partitions import Partition
from kbslurm.backends.slurm.doctor.site_file import Wishes
from kbslurm.backends.slurm.doctor.survey import Survey
from kbslurm.cli.operator import doctor_local
from kbslurm.cli.operator.site_render import script_of
from kbslurm.config import shared_folders, sites
from kbslurm.config.settings import load as load_config
from kbslurm.domain.finding import Finding, Grade, worst
from kbslurm.domain.keepers import Warm
from kbslurm.domain.site import Container, GpuType, Paths, Poll, Scheduler, Site
from kbslurm.errors import Misconfigured
from kbslurm.flow.script_notes import notes_on
from kbslurm_eval.shared.wire import WIRE_VERSION, Isolation, Report
from tests.services import SHELLCHECK, needs

TOLD = Path(__file__).resolve().parents[1] / "golden" / "data" / "slurm-24.11"
GPU = GpuType(name="H100", request="--gres=gpu:h100:1", partition="gpu", image="cuda.sif", count=4)
SITE = Site(name="test", paths=Paths(shared_root=PurePosixPath("/shared")), gpus={"H100": GPU})


def told(name: str) -> str:
    return (TOLD / f"{name}.txt").read_text()


def graded(findings: Sequence[Finding], grade: Grade) -> list[str]:
    return [finding.name for finding in findings if finding.grade is grade]


def one(findings: Sequence[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


# --------------------------------------------------------------------------------------------- a real cluster's words


def test_a_real_clusters_partitions_are_read() -> None:
    found = {part.name: part for part in partitions.read_partitions(told("sinfo"), told("partitions"))}
    assert set(found) == {"all", "gpu-h100", "gpu-a100", "mig", "low", "high"}
    assert found["all"].gpus == {"a100": 6, "h100": 6, "1g.10gb": 2}
    assert found["all"].default
    assert [name for name, part in found.items() if part.preemptible] == ["low"]
    assert found["gpu-h100"] == Partition(name="gpu-h100", gpus={"h100": 6}, least_cpus=12)


def test_a_real_clusters_settings_are_read() -> None:
    found = survey.read_settings(told("config"))
    assert found["SLURM_VERSION"].startswith("24.11")
    assert found["MinJobAge"] == "300 sec"
    assert found["SlurmctldParameters"] == ""
    assert survey.has_accounting(found)
    assert float(found["answered at"]) > 1.7e9
    assert survey.read_accounts(told("associations")) == (("contest",), ("normal",))


def test_a_real_clusters_first_file_can_be_read_and_suits_it(tmp_path: Path) -> None:
    found = Survey(
        cluster="kbtest",
        version="24.11.5",
        settings=survey.read_settings(told("config")),
        partitions=partitions.read_partitions(told("sinfo"), told("partitions")),
        accounts=("contest",),
        qos=("normal",),
        runtime="apptainer",
        program="/usr/bin/apptainer",
    )
    file = tmp_path / "kbtest.toml"
    file.write_text(site_file.toml_of(found, Wishes(shared_root="/shared/kbslurm", checked_on="2026-11-22")))
    site = sites.load(file)
    assert site.name == "kbtest"
    assert {name: (gpu.partition, gpu.request, gpu.count, gpu.whole) for name, gpu in site.gpus.items()} == {
        "H100": ("gpu-h100", "--gres=gpu:h100:1", 4, True),
        "A100": ("gpu-a100", "--gres=gpu:a100:1", 4, True),
        "1g.10gb": ("mig", "--gres=gpu:1g.10gb:1", 2, False),
    }
    assert {gpu.account for gpu in site.gpus.values()} == {"contest"}
    assert "# ? of the 6 in gpu-h100: how many may be ours at once\ncount = 4" in file.read_text()
    asked = site_file.toml_of(found, Wishes(shared_root="/shared", counts={"H100": 1, "A100": 99}))
    assert re.findall(r"^(?:# [?] of the .*|count = .*)$", asked, re.MULTILINE) == [f"count = {n}" for n in (2, 6, 1)]
    only = site_file.toml_of(found, Wishes(shared_root="/shared", gpus=("H100",)))
    assert "[gpus.H100]" in only
    assert "A100" not in only
    with pytest.raises(Misconfigured, match="no usable GPU"):
        site_file.toml_of(dataclasses.replace(found, partitions=()), Wishes(shared_root="/shared"))


def test_site_init_takes_a_few_gpus_and_asks_on_a_terminal(tmp_path: Path) -> None:
    told = shlex.quote(str(TOLD))
    answers = {
        "sinfo": f'[ "$1" = -V ] && echo "slurm-wlm 24.11.5" || cat {told}/sinfo.txt',
        "scontrol": f'[ "$2" = config ] && cat {told}/config.txt || cat {told}/partitions.txt',
        "sacctmgr": f"cat {told}/associations.txt",
    }
    for tool, body in answers.items():
        (tmp_path / tool).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / tool).chmod(0o755)
    file = tmp_path / "sites" / "here.toml"
    words = ["site", "init", "--bin-dir", str(tmp_path), "--out", str(file), "--shared-root", "/shared", "--force"]

    def counts(*more: str, typed: str | None = None) -> tuple[dict[str, int], str]:
        keyboard, ours = os.openpty()  # what is typed, and the terminal that reads it
        os.write(keyboard, (typed or "").encode())
        done = subprocess.run(
            [sys.executable, "-m", "kbslurm", *words, *more],
            env={**os.environ, "KBSLURM_STATE_DIR": str(tmp_path)},
            stdin=subprocess.DEVNULL if typed is None else ours,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        os.close(ours)
        os.close(keyboard)
        assert done.returncode == 0, done.stderr
        return {name: gpu.count for name, gpu in sites.load(file).gpus.items()}, done.stderr

    assert counts()[0] == {"1g.10gb": 2, "A100": 4, "H100": 4}
    assert counts("--count", "3")[0] == {"1g.10gb": 2, "A100": 3, "H100": 3}
    found, asked = counts(typed="1\n99\n5\n\n")
    assert found == {"1g.10gb": 1, "A100": 5, "H100": 4}
    assert "A100: 6 in partition gpu-a100. How many may the competition use at once? [4]" in asked


ASSOC = """\
root|||||||||
contest||||||5|||root
contest|kb||||9|||gres/gpu=3|
contest|other|||1|1||||
spare||||||||gres/gpu:h100=2|root
spare|kb||short||||||
"""
QOS = """\
normal||||||||
short|2|20||||gres/gpu=4||
busy|||||||1|
"""


def test_max_open_and_count_are_held_to_what_accounting_allows() -> None:
    told = limits.read_limits(ASSOC, QOS, user="kb", default_account="contest")

    def said(*gpus: GpuType, partition_qos: dict[str, str] | None = None) -> list[tuple[str, str]]:
        site = Site(name="x", paths=Paths(shared_root=PurePosixPath("/x")), gpus={gpu.name: gpu for gpu in gpus})
        found = limits.findings_of(site, told, partition_qos)
        assert all(one.remedy or one.grade is Grade.PASS for one in found)
        return [(one.where, one.text) for one in found]

    h100 = GpuType(name="H100", request="--gres=gpu:h100:1", count=4, max_open=8)
    a100 = GpuType(name="A100", request="--gres=gpu:a100:1", count=2, max_open=4)
    assert said(h100, a100) == [
        ("H100, A100", "account contest allows 9 submitted jobs (MaxSubmitJobs), but max_open is 12 in total"),
        ("H100, A100", "account contest lets 5 jobs run at once (GrpJobs), but count is 6 in total"),
        ("H100, A100", "account contest allows 3 GPUs at once (GrpTRES), but count is 6 in total"),
    ]
    spare = dataclasses.replace(h100, account="spare"), dataclasses.replace(a100, account="spare")
    assert said(*spare) == [
        ("H100", "account spare allows 2 h100 GPUs at once (GrpTRES), but count is 4 in total"),
        ("H100, A100", "QOS short lets 2 jobs run at once (MaxJobsPerUser), but count is 6 in total"),
        ("H100, A100", "QOS short allows 4 GPUs at once (MaxTRESPerUser), but count is 6 in total"),
    ]
    few = dataclasses.replace(h100, count=2, max_open=3, partition="gpu")
    assert said(few) == [("", "max_open and count are within those of account contest, QOS normal")]
    assert "QOS busy lets 1 jobs" in said(few, partition_qos={"gpu": "busy"})[0][1]


def test_a_job_that_the_cluster_changed_is_told_by_what_it_got() -> None:
    gpu = GpuType(name="H100", partition="gpu,gpu2", qos="")
    assert gpu_types.rewritten(gpu, "partition", "gpu2") is None
    assert gpu_types.rewritten(gpu, "qos", "normal") is None, "it asked for none"
    found = gpu_types.rewritten(gpu, "partition", "gpu_owners")
    assert found is not None and found.grade is Grade.CAUTION
    assert "gpu,gpu2 but get gpu_owners" in found.text and '"gpu_owners"' in found.remedy


def test_a_first_file_of_odd_words_can_still_be_read(tmp_path: Path) -> None:
    odd = Survey(
        cluster='the "big" one\\',
        version="23.02.7",
        settings={},
        partitions=(
            Partition(name="gpu", gpus={"gpu": 4}, max_time_s=30.0),
            Partition(name="amd", gpus={"mi300x": 8}, preemptible=True, max_time_s=86_400.0),
        ),
        accounts=("def-a_gpu", "def-b"),
        qos=("short", "long"),
        cannot=("sacctmgr: no",),
    )
    file = tmp_path / "odd.toml"
    file.write_text(site_file.toml_of(odd, Wishes(shared_root="/shared")))
    site = sites.load(file)
    assert site.gpus["GPU"].request == "--gres=gpu:1"
    assert site.gpus["MI300X"].vendor == "amd"
    assert site.gpus["MI300X"].image == "rocm.sif"
    assert not site.slurm.accounting


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:h100:4(S:0-1)", {"h100": 4}),
        ("gpu:4", {"gpu": 4}),
        ("gpu:a100:2(IDX:0-1),gpu:h100:1,shard:8", {"a100": 2, "h100": 1}),
        ("gpu:nvidia_a100_80gb_pcie_1g.10gb:7", {"nvidia_a100_80gb_pcie_1g.10gb": 7}),
        ("gpu:1g.10gb:2", {"1g.10gb": 2}),
        ("(null)", {}),
        ("craynetwork:4", {}),
    ],
)
def test_gres_are_counted(gres: str, gpus: dict[str, int]) -> None:
    assert partitions.gpus_of(gres) == gpus


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7-00:00:00", 604_800.0), ("1-12", 129_600.0), ("10:00", 600.0), ("02:30:00", 9000.0), ("30", 1800.0)],
)
def test_slurms_spans_are_read(text: str, seconds: float) -> None:
    assert partitions.read_span(text) == seconds
    assert partitions.read_span("UNLIMITED") is None


def test_nodes_that_are_down_dont_count() -> None:
    found = partitions.read_partitions(
        "p|gpu:h100:4|8|2|idle\np|gpu:h100:4|8|3|down*\np|gpu:h100:4|8|1|mix-\np|x|y\n", ""
    )
    assert found[0].gpus == {"h100": 12}


# ---------------------------------------------------------------------------------------------------------- settings


def settings(**changed: str) -> dict[str, str]:
    return survey.read_settings(told("config")) | changed


def looked(site: Site = SITE, /, **changed: str) -> list[Finding]:
    known = settings(**changed)
    return scheduler_settings.setting_findings(site, known, now=float(known["answered at"]))


@pytest.mark.parametrize(
    ("name", "changed", "grade"),
    [
        ("accounting", {}, Grade.PASS),
        ("accounting", {"AccountingStorageType": "accounting_storage/none"}, Grade.FAIL),
        ("MinJobAge", {}, Grade.PASS),
        ("MinJobAge", {"MinJobAge": "2 sec"}, Grade.CAUTION),
        ("MinJobAge", {"MinJobAge": ""}, Grade.CAUTION),
        ("rate limits", {}, Grade.PASS),
        ("rate limits", {"SlurmctldParameters": "rl_enable"}, Grade.PASS),
        ("rate limits", {"SlurmctldParameters": "rl_enable,rl_refill_rate=1,rl_refill_period=10"}, Grade.CAUTION),
        ("start delay", {"SchedulerParameters": "batch_sched_delay=30"}, Grade.CAUTION),
        ("device isolation", {}, Grade.CAUTION),
        ("device isolation", {"ConstrainDevices": "yes", "TaskPlugin": "task/affinity,task/cgroup"}, Grade.PASS),
        ("memory limit", {}, Grade.PASS),
        ("memory limit", {"JobAcctGatherParams": "(null)"}, Grade.CAUTION),
        (
            "memory limit",
            {"JobAcctGatherParams": "", "ConstrainRAMSpace": "yes", "TaskPlugin": "task/cgroup"},
            Grade.PASS,
        ),
        ("memory limit", {"SelectTypeParameters": "CR_CORE"}, Grade.CAUTION),
        ("requeue", {"PrologFlags": "Alloc,ForceRequeueOnFail"}, Grade.CAUTION),
        ("controller's clock", {}, Grade.PASS),
    ],
)
def test_settings_are_graded(name: str, changed: dict[str, str], grade: Grade) -> None:
    assert one(looked(**changed), name).grade is grade


def test_with_warm_workers_an_epilog_and_hidden_jobs_matter() -> None:
    kept = dataclasses.replace(SITE.gpus["H100"], warm=Warm(max=1))
    warm = dataclasses.replace(SITE, gpus={**SITE.gpus, "H100": kept})
    off = dataclasses.replace(SITE, gpus={"H100": dataclasses.replace(kept, warm=Warm(max=0))})
    for site in (SITE, off):
        names = {finding.name for finding in looked(site, Epilog="/etc/slurm/epilog.sh", PrivateData="jobs")}
        assert not names & {"job epilog", "other people's jobs", "steps"}
    found = looked(warm, Epilog="/etc/slurm/epilog.sh", PrivateData="jobs,usage")
    assert one(found, "job epilog").grade is Grade.CAUTION
    assert "/etc/slurm/epilog.sh runs when a job ends, so not between two runs" in one(found, "job epilog").text
    assert "TaskEpilog" in one(found, "job epilog").remedy
    assert one(found, "other people's jobs").grade is Grade.CAUTION
    found = looked(warm, Epilog="(null)", PrivateData="none")
    assert one(found, "job epilog").grade is Grade.PASS
    assert one(found, "other people's jobs").grade is Grade.PASS
    assert "the controller creates them: each run in a warm worker (H100)" in one(found, "steps").text
    found = looked(warm, SlurmctldParameters="idle_on_node_suspend,enable_stepmgr")
    assert "their node creates them (enable_stepmgr)" in one(found, "steps").text
    newer = survey.read_settings("Epilog[0]               = /etc/slurm/epilog.d/*\n")
    assert one(looked(warm, **newer), "job epilog").grade is Grade.CAUTION


def test_a_controllers_clock_that_is_off_is_told() -> None:
    known = settings()
    found = scheduler_settings.setting_findings(SITE, known, now=float(known["answered at"]) - 90)
    assert one(found, "controller's clock").grade is Grade.CAUTION
    assert "90 s" in one(found, "controller's clock").text


def test_a_site_without_accounting_is_taken_at_its_word() -> None:
    without = dataclasses.replace(SITE, slurm=Scheduler(accounting=False))
    off = looked(without, AccountingStorageType="accounting_storage/none")
    assert one(off, "accounting").grade is Grade.CAUTION
    assert one(looked(without), "accounting").grade is Grade.CAUTION
    patient = dataclasses.replace(SITE, poll=Poll(min_interval_s=120))
    assert one(looked(patient), "MinJobAge").grade is Grade.CAUTION


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("slurm-wlm 24.11.5", Grade.PASS),
        ("slurm 20.11.9", Grade.PASS),
        ("slurm 26.05.0-0rc1", Grade.PASS),
        ("slurm 19.05.5", Grade.CAUTION),
        ("hello", Grade.CAUTION),
    ],
)
def test_versions_are_graded(text: str, grade: Grade) -> None:
    assert login_node.version_finding(text).grade is grade


@pytest.mark.parametrize(
    ("change", "name", "grade"),
    [
        ({}, "GPUs", Grade.PASS),
        ({"count": 9}, "GPUs", Grade.CAUTION),
        ({"request": "--gpus-per-node=h100:1"}, "GPUs", Grade.PASS),
        ({"partition": "gone"}, "partition", Grade.FAIL),
        ({"partition": "low"}, "partition", Grade.CAUTION),
        ({"partition": "shut"}, "partition", Grade.FAIL),
        ({"max_time_s": 7200.0}, "time limit", Grade.FAIL),
        ({"request": "--gres=gpu:nvidia_h100_1g.10gb:1"}, "MIG", Grade.FAIL),
    ],
)
def test_a_gpu_type_is_held_to_its_partition(change: dict[str, object], name: str, grade: Grade) -> None:
    there = (
        Partition(name="gpu", gpus={"h100": 4}, max_time_s=3600.0),
        Partition(name="low", gpus={"h100": 4}, preemptible=True),
        Partition(name="shut", gpus={"h100": 4}, up=False),
    )
    found = gpu_types.gpu_findings(dataclasses.replace(GPU, **change), there)  # type: ignore[arg-type]
    assert one(found, name).grade is grade
    assert all(finding.where == "H100" for finding in found)


# ------------------------------------------------------------------------------------------------------------- a node

FACTS = {
    "node": "h1",
    "prepared": "yes",
    "pong_seen_at": "1000.35",
    "torn_reads": "0",
    "cores": "2",
    "cores_there": "64",
    "tmpdir": "/tmp",
    "shm_free_mb": "900",
    "user_namespaces": "yes",
    "network_namespaces": "yes",
    "fuse": "yes",
    "internet": "no",
    "devices_there": "4",
    "devices_opened": "1",
    "gpu": "NVIDIA H100 80GB HBM3| 570.86| Disabled| Enabled| 345| 1980| 0x0000000000000001",
    "runtime": "apptainer version 1.4.5",
    "setuid": "0",
    "squashfuse": "yes",
    "image": "file of 5000 MiB",
    "start_ms_first": "400",
    "start_ms_second": "120",
    "inside_python": "3.12.3",
    "inside_devices": "1",
    "inside_network": "no",
    "inside_munge": "no",
    "inside_root_writable": "no",
    "inside_torch": "2.8.0",
    "inside_gpus": "1",
    "memory_asked_mb": "3072",
    "memory_limit_mb": "3072",
}


def sight(**changed: str | None) -> Sight:
    facts = {name: value for name, value in (FACTS | changed).items() if value is not None}
    return Sight(
        facts={name: [value] for name, value in facts.items()},
        ping_sent_at=1000.0,
        ping_seen_at=1000.1,
        pong_sent_at=1000.2,
        won_here=frozenset(range(30)),
        won_there=tuple(range(30, shared_root.RACES)),
        raced=True,
    )


SCRATCH = "all that a runner may write: memory of 1024 MiB at most"


def report_of(isolation: Isolation) -> Report:
    return Report(
        version=WIRE_VERSION,
        token="kb-rehearsal",
        attempt=1,
        nonce="n",
        mode="test",
        problem_digest="d",
        harness_digest="h",
        verdict="passed",
        reason="all phases passed",
        score_s=None,
        interval_s=None,
        tests=[],
        benchmarks=[],
        phases=[],
        isolation=isolation,
        started_at_ns=0,
        ended_at_ns=2_000_000_000,
        log="",
        secret_log="",
        host={"image_digest": "sha256:" + "1" * 64, "image_pinned": "sha256:" + "1" * 64, "image_seen": "file"},
        flags=[],
    )


def test_a_good_node_passes_everything() -> None:
    found = node.node_findings(SITE, GPU, sight())
    assert worst(found) is Grade.PASS, [finding for finding in found if finding.grade is not Grade.PASS]
    assert {finding.where for finding in found} == {"H100 on h1"}
    assert len(found) >= 18


@pytest.mark.parametrize(
    ("changed", "name", "grade"),
    [
        ({"pong_seen_at": "1030.0"}, "clocks", Grade.PASS),
        ({"pong_seen_at": "1030.0"}, "file latency", Grade.CAUTION),
        ({"pong_seen_at": "1030.0"}, "visibility", Grade.CAUTION),
        ({"pong_seen_at": None}, "file latency", Grade.CAUTION),
        ({"torn_reads": "7"}, "rename between nodes", Grade.CAUTION),
        ({"prepared": None}, "modules", Grade.FAIL),
        ({"cores": "64"}, "cores", Grade.CAUTION),
        ({"shm_free_mb": "none"}, "shared memory", Grade.FAIL),
        ({"devices_there": "0"}, "GPU", Grade.FAIL),
        ({"devices_opened": "4"}, "devices", Grade.CAUTION),
        ({"gpu": FACTS["gpu"].replace("Disabled", "Enabled", 1)}, "MIG", Grade.FAIL),
        ({"gpu": FACTS["gpu"].replace("0x0000000000000001", "0x0000000000000044")}, "GPU's clock", Grade.CAUTION),
        ({"profiling": "1"}, "profiling", Grade.CAUTION),
        ({"runtime": "none"}, "container program", Grade.FAIL),
        ({"user_namespaces": "no"}, "user namespaces", Grade.FAIL),
        ({"user_namespaces": "no", "setuid": "1"}, "user namespaces", Grade.PASS),
        ({"network_namespaces": "no"}, "network namespaces", Grade.FAIL),
        ({"image": "none"}, "image on the node", Grade.FAIL),
        ({"squashfuse": "no"}, "squashfuse", Grade.CAUTION),
        ({"fuse": "no"}, "squashfuse", Grade.CAUTION),
        ({"start_ms_first": "21000", "start_ms_second": "20000"}, "container", Grade.CAUTION),
        ({"start_failed": "FATAL: broken"}, "container", Grade.FAIL),
        ({"inside_python": None}, "python3", Grade.FAIL),
        ({"inside_python": "3.9.2"}, "python3", Grade.FAIL),
        ({"inside_network": "yes"}, "isolation", Grade.FAIL),
        ({"inside_munge": "yes"}, "isolation", Grade.FAIL),
        ({"inside_root_writable": "yes"}, "isolation", Grade.FAIL),
        ({"inside_gpus": "0"}, "GPU in the container", Grade.FAIL),
        ({"inside_gpus": "4"}, "GPU in the container", Grade.CAUTION),
        ({"memory_limit_mb": None}, "memory on the node", Grade.CAUTION),
        ({"memory_limit_mb": "512000"}, "memory on the node", Grade.CAUTION),
    ],
)
def test_each_fault_of_a_node_is_told(changed: dict[str, str | None], name: str, grade: Grade) -> None:
    found = [finding for finding in node.node_findings(SITE, GPU, sight(**changed)) if finding.name == name]
    assert grade in {finding.grade for finding in found}, found


@pytest.mark.parametrize(
    ("there", "whose"), [("64", "2, its own"), ("2", "2, all that this node has"), (None, "2, all")]
)
def test_cores_are_its_own_only_where_the_node_has_more(there: str | None, whose: str) -> None:
    (told,) = [one for one in node.node_findings(SITE, GPU, sight(cores_there=there)) if one.name == "cores"]
    assert (told.grade, told.text.startswith(whose)) == (Grade.PASS, True), told


@pytest.mark.parametrize(
    ("level", "policy", "board", "grade"),
    [
        (2, 2, 2, Grade.PASS),
        (3, 2, 3, Grade.PASS),
        (2, 2, 3, Grade.CAUTION),
        (1, 2, 2, Grade.FAIL),
        (1, 0, 1, Grade.PASS),
    ],
)
def test_the_isolation_that_was_achieved_is_held_to_what_ranks(
    level: int, policy: int, board: int, grade: Grade
) -> None:
    rehearsed = sight(rehearsed="0")
    notes = ["no network namespace of its own"] if level < 2 else []
    rehearsed.report = report_of(Isolation(level=level, means="apptainer", notes=[*notes, SCRATCH]))
    site = dataclasses.replace(SITE, ranked_min_isolation=policy)
    found = node.node_findings(site, GPU, rehearsed, boards={"spring": board})
    told = one(found, "isolation achieved")
    assert told.grade is grade, told
    assert ("spring" in told.text) == (grade is Grade.CAUTION)
    assert ("no network namespace" in (told.remedy or "")) == (grade is Grade.FAIL)
    assert one(found, "a runner's scratch").grade is Grade.PASS
    assert one(found, "image as it ran").text.endswith("as pinned")


def test_an_attempt_that_gives_no_report_or_a_wrong_verdict_is_a_failure() -> None:
    silent = sight(rehearsed="72")
    silent.unreported = "the image cuda.sif is sha256:1 and sha256:2 is pinned"
    assert one(node.node_findings(SITE, GPU, silent), "rehearsal").grade is Grade.FAIL
    wrong = sight(rehearsed="0")
    wrong.report = dataclasses.replace(report_of(Isolation(level=2, means="apptainer")), verdict="infrastructure")
    assert one(node.node_findings(SITE, GPU, wrong), "rehearsal").grade is Grade.FAIL


def test_a_clock_that_is_off_isnt_taken_for_a_slow_disk() -> None:
    off = sight(pong_seen_at=str(1000.35 + 60))
    off.ping_sent_at = 1060.0
    found = node.node_findings(SITE, GPU, off)
    assert one(found, "clocks").grade is Grade.CAUTION
    assert "60" in one(found, "clocks").text
    assert one(found, "file latency").grade is Grade.PASS


def test_a_folder_that_both_sides_made_is_a_failure() -> None:
    both = sight()
    both.won_there = tuple(range(29, shared_root.RACES))
    assert one(node.node_findings(SITE, GPU, both), "mkdir between nodes").grade is Grade.FAIL


def test_a_pinned_image_is_held_to_its_pin_on_the_node() -> None:
    pinned = dataclasses.replace(GPU, image_digest="sha256:" + "1" * 64)
    fine = node.node_findings(SITE, pinned, sight(image_digest=pinned.image_digest))
    assert one(fine, "image on the node").grade is Grade.PASS
    other = node.node_findings(SITE, pinned, sight(image_digest="sha256:" + "2" * 64))
    assert one(other, "image on the node").grade is Grade.FAIL


def test_a_site_that_shares_the_network_says_so() -> None:
    shared = dataclasses.replace(SITE, container=Container(network="shared"))
    assert one(node.node_findings(shared, GPU, sight()), "internet").grade is Grade.CAUTION


def test_lines_that_are_no_facts_are_left_out() -> None:
    text = '{"name":"a","value":"1"}\nnoise\n{"name":"a"}\n[]\n{"name":"a","value":2}\n'
    assert node_facts.read_facts(text) == {"a": ["1", "2"]}


# -------------------------------------------------------------------------------------------------- the probe's script


SITES = [file.stem for file in sorted(shared_folders.path("site-configs").glob("*.toml"))]


def probe_scripts(name: str) -> dict[str, str]:
    site, templates = (
        sites.load(shared_folders.path("site-configs") / f"{name}.toml"),
        shared_folders.path("sbatch_templates"),
    )
    where = PurePosixPath("/shared/doctor-0123")
    return {gpu: probe_script.probe_script(site, told, where, templates) for gpu, told in site.gpus.items()}


@pytest.mark.parametrize("name", SITES)
def test_every_sites_probe_is_shell_and_asks_as_an_attempt_does(name: str) -> None:
    site = sites.load(shared_folders.path("site-configs") / f"{name}.toml")
    for wanted, text in probe_scripts(name).items():
        gpu = site.gpus[wanted]
        options = set(re.findall(r"^#SBATCH (\S+)$", text, re.MULTILINE))
        if gpu.request:
            assert gpu.request in options
        assert "--no-requeue" in options
        for module in site.modules:
            assert f"module load {module}" in text
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


@needs(SHELLCHECK)
@pytest.mark.parametrize("name", SITES)
def test_shellcheck_has_nothing_to_say_of_a_sites_probe(name: str) -> None:
    for text in probe_scripts(name).values():
        argv = ["shellcheck", "-s", "sh", "-S", "warning", "-e", "SC1090,SC1091,SC2154", "-"]
        subprocess.run(argv, input=text, text=True, check=True)


# --------------------------------------------------------------------------------------------------------- this machine


def test_the_shared_root_is_tried(tmp_path: Path) -> None:
    site = dataclasses.replace(SITE, paths=Paths(shared_root=PurePosixPath(tmp_path / "root")))
    found = shared_root.root_findings(site)
    assert worst(found) is not Grade.FAIL
    assert {finding.name for finding in found} == {"shared root", "shared root's mode", "mkdir", "rename"}
    assert list((tmp_path / "root").iterdir()) == []
    (tmp_path / "root").chmod(0o777)
    assert one(shared_root.root_findings(site), "shared root's mode").grade is Grade.FAIL
    (tmp_path / "file").touch()
    blocked = dataclasses.replace(SITE, paths=Paths(shared_root=PurePosixPath(tmp_path / "file" / "root")))
    assert worst(shared_root.root_findings(blocked)) is Grade.FAIL


def test_this_machine_is_looked_at(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    (tmp_path / "kbslurm.toml").write_text(f"[daemon.local]\nslots = {{ CPU = {cores + 1} }}\n")
    config = load_config(tmp_path / "kbslurm.toml", {"KBSLURM_STATE_DIR": str(tmp_path / "state")}, cwd=tmp_path)
    assert doctor_local.state_finding(config.state_dir).grade in (Grade.PASS, Grade.CAUTION)
    assert doctor_local.configuration_finding(config).grade is Grade.PASS
    assert one(list(doctor_local.backend_findings(config)), "local slots").grade is Grade.CAUTION
    (tmp_path / "state").touch()
    assert doctor_local.state_finding(tmp_path / "state" / "deeper").grade is Grade.FAIL
    empty = load_config(None, {"KBSLURM_STATE_DIR": str(tmp_path / "none")}, cwd=tmp_path / "nowhere")
    assert graded(list(doctor_local.backend_findings(empty)), Grade.CAUTION) == ["backends"]


def test_clocks_and_pythons_are_graded() -> None:
    assert doctor_local.clock_finding(datetime.now(UTC)).grade is Grade.PASS
    assert doctor_local.clock_finding(datetime.now(UTC) - timedelta(minutes=5)).grade is Grade.FAIL
    assert doctor_local.python_finding((3, 11)).grade is Grade.PASS
    assert doctor_local.python_finding((3, 19)).grade is Grade.CAUTION


def test_an_unreachable_database_is_a_failure_and_not_an_exception(tmp_path: Path) -> None:
    nowhere = {"DATABASE_URL": "postgresql://127.0.0.1:9/none", "KBSLURM_STATE_DIR": str(tmp_path)}
    found = list(doctor_local.database_findings(load_config(None, nowhere, cwd=tmp_path)))
    assert graded(found, Grade.FAIL) == ["database"]
    assert found[0].remedy


def test_a_database_is_looked_at(database_url: str, tmp_path: Path) -> None:
    config = load_config(None, {"DATABASE_URL": database_url, "KBSLURM_STATE_DIR": str(tmp_path)}, cwd=tmp_path)
    found = {finding.name: finding.grade for finding in doctor_local.database_findings(config)}
    assert found == {"database": Grade.PASS, "clock": Grade.PASS, "daemon": Grade.CAUTION}


def test_what_site_says_can_be_read(tmp_path: Path) -> None:
    def said(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "kbslurm", *words],
            env={**os.environ, "KBSLURM_STATE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert {"example", "bunya"} <= {row["name"] for row in json.loads(said("site", "list", "--json"))}
    assert "paths.shared_root" in said("site", "show", "example")
    checked = said("site", "check", "bunya")
    assert "is valid" in checked
    assert "kbslurm site render bunya H100" in checked and "  #SBATCH --gres=gpu:h100:1" in checked
    plain = said("site", "render", "bunya", "h100", "--plain")
    told = json.loads(said("site", "render", "bunya", "h100", "--json"))
    assert json.loads(said("site", "check", "bunya", "--json"))["scripts"]["H100"] == plain == told["script"]
    shown = said("site", "render", "bunya", "H100")
    assert "".join(line + "\n" for line in shown.splitlines() if not line.startswith("#: ")) == plain
    notes = {plain.splitlines()[note["line"] - 1]: note["text"] for note in told["notes"]}
    assert notes["#SBATCH --qos=gpu"] == "[gpus.H100] qos"
    assert "the problem's limits" in notes[next(line for line in notes if " --time=" in line)]
    a_test = json.loads(said("site", "render", "bunya", "H100", "--mode", "test", "--json"))["script"]
    assert a_test != plain and a_test.splitlines()[0] == "#!/bin/sh"
    subprocess.run(["sh", "-n"], input=shown, text=True, check=True)
    (tmp_path / "bare.toml").write_text(BARE)
    assert "a job on H100" in said("site", "check", str(tmp_path / "bare.toml")), "also without a max_time"


BARE = 'name = "bare"\n[paths]\nshared_root = "/shared"\n[gpus.H100]\nimage = "cuda.sif"\n'


def test_every_line_that_a_sites_file_decides_says_where_it_comes_from() -> None:
    for name in ("example", "bunya", "alliance", "della"):
        site = sites.load_all(shared_folders.path("site-configs"), [name])[0]
        for gpu in site.gpus.values():
            script = script_of(site, gpu.name, "leaderboard")
            noted = {note.line for note in notes_on(script, site, gpu)}
            bare = [n for n, line in enumerate(script.splitlines(), 1) if line.startswith("#SBATCH") and n not in noted]
            told = [script.splitlines()[n - 1].split("=")[0] for n in bare]
            assert told == ["#SBATCH --output"], "every request but the log's place has a note"
