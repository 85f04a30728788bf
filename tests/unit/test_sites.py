"""Sites: read with every complaint in its place, and what makes a job's script safe."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.config import shared_folders, sites
from kbslurm.domain.apptainer import ApptainerCommand, Bind, quoted
from kbslurm.domain.run import JobName
from kbslurm.domain.site import FleetNode, Site
from kbslurm.errors import Misconfigured, NotFound
from kbslurm.flow.script import Charged, node_text, script_for, shell_quoted
from kbslurm.wiring import slurm_place
from kbslurm_eval.shared.wire import Mode

SUPERVISOR = "0" * 64
PLAIN = """\
name = "here"

[paths]
shared_root = "/shared/kb"

[gpus.H100]
request = "--gres=gpu:h100:1"
image = "cuda.sif"
count = 3
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "here.toml"
    file.write_text(text)
    return file


def test_a_short_file_is_a_whole_site(tmp_path: Path) -> None:
    site = sites.load(written(tmp_path, PLAIN))
    gpu = site.gpus["H100"]
    assert gpu.slots == 6
    assert site.image_of(gpu) == "/shared/kb/images/cuda.sif"
    assert site.untrusted
    assert site.container.runtime == "apptainer"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('name = "here"', 'name = "here"\nmax_tim = "2h"', 2, "Did you mean max_time?"),
        ('name = "here"', 'name = "he re"', 1, "isn't a valid site name"),
        ('"/shared/kb"', '"shared/kb"', 4, "isn't an absolute path"),
        ('"/shared/kb"', '"/shared/a:b"', 4, "--bind"),
        ('"/shared/kb"', '"/shared/a,b"', 4, "--bind"),
        ('"/shared/kb"', '"/shared/a\\nb"', 4, "--bind"),
        ("count = 3", "count = -3", 9, "is negative"),
        ("count = 3", 'count = "3"', 9, "a whole number"),
        ("count = 3", 'memory = "3 sacks"', 9, "memory"),
        ("count = 3", 'max_time = "soon"', 9, "valid duration"),
        ("count = 3", 'max_time = "2h"\nmin_time = "3h"', 10, "at least 10800 s and at most 7200 s"),
        ('name = "here"', 'name = "here"\nmin_time = "1h"\nmax_time = "30m"', 2, "at least 3600 s"),
        ('name = "here"', 'name = "here"\nmail = "nobody"', 2, "isn't an e-mail address"),
        ("count = 3", 'account = "{person.team}"', 9, "{person.account}"),
        ("count = 3", 'licenses = "two words"', 9, "isn't a list of licences"),
        ("count = 3", "nice = -5", 9, "is negative"),
        ("count = 3", 'gpu_freq = "fast"', 9, "isn't what --gpu-freq takes"),
        ("count = 3", 'vendor = "none"\ngpu_freq = "high"', 10, "no GPU whose clocks"),
        ("count = 3", 'gpu_freq = "high"\noptions = ["--gpu-freq=low"]', 10, "as gpu_freq does"),
        ("count = 3", 'vendor = "voodoo"', 9, "isn't one of nvidia"),
        ("count = 3", 'options = ["--job-name=x"]', 9, "isn't allowed here"),
        ("count = 3", 'multi = "--gres=gpu:h100:4"', 9, "where the number of GPUs goes"),
        ("count = 3", 'multi = "--array={n}"', 9, "isn't allowed here"),
        ('"--gres=gpu:h100:1"', '"gpu:h100:1"', 7, "one sbatch option"),
        ('image = "cuda.sif"\n', "", 6, "no image is configured"),
        ("count = 3", 'image_tag = "2026/11"', 9, "isn't a valid tag"),
        ('image = "cuda.sif"\n', 'image_tag = "1"\n', 6, "no image is configured"),
        ("[gpus.H100]", '[container]\nruntime = "none"\n[gpus.H100]', 7, "untrusted = false"),
        ("[gpus.H100]", '[submit]\nvia = "ssh"\n[gpus.H100]', 6, "needs a host"),
        ("[gpus.H100]", '[submit]\nvia = "rest"\n[gpus.H100]', 6, "needs its address"),
        ("[gpus.H100]", '[submit]\nvia = "rest"\nurl = "http://far:6820"\n[gpus.H100]', 8, "clear text"),
        ("[gpus.H100]", '[submit]\nvia = "rest"\nurl = "unix:/a"\napi = "42"\n[gpus.H100]', 9, "version of the API"),
        ("[gpus.H100]", '[submit]\ntoken_file = "/a"\n[gpus.H100]', 7, "for slurmrestd only"),
        (
            "[gpus.H100]",
            '[submit]\nvia = "rest"\nurl = "unix:/a"\ntoken_command = "echo eyJhbGciOiJIUzI1NiJ9.e.f"\n[gpus.H100]',
            6,
            "contains a token",
        ),
        ("[gpus.H100]", '[exports]\nSLURM_CONF = "x"\n[gpus.H100]', 7, "neither Slurm nor kbslurm"),
        ("[gpus.H100]", '[exports]\nDIR = "/elsewhere"\n[gpus.H100]', 7, "neither Slurm nor kbslurm"),
        ("count = 3", 'options = ["--job-name x"]', 9, "isn't allowed here"),
        ("count = 3", 'options = ["--outp=/x"]', 9, "isn't allowed here"),
        ('"--gres=gpu:h100:1"', '"--array=1-3"', 7, "isn't allowed here"),
        ("count = 3", 'memory = "0G"', 9, "memory"),
        ("[gpus.H100]", "[poll]\ncalls_per_minute = 0\n[gpus.H100]", 7, "nothing can be monitored"),
        ("[gpus.H100]", "[submit]\nport = 0\n[gpus.H100]", 7, "isn't a valid port"),
        ("[gpus.H100]", '[container]\nnetwork = "shared"\n[gpus.H100]', 7, "untrusted = false"),
        ("[paths]", 'proxy = "http://u:secret@proxy:3128"\n[paths]', 3, "password"),
        ("[gpus.H100]", "[gpus.H100", 6, "not valid TOML"),
        ('shared_root = "/shared/kb"', "", 3, "is missing"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_the_next_step(
    tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    assert old in PLAIN
    with pytest.raises(Misconfigured) as wrong:
        sites.load(written(tmp_path, PLAIN.replace(old, new)))
    assert wrong.value.line == line, wrong.value.message
    assert wrong.value.fix
    assert said in f"{wrong.value.message} {wrong.value.fix}"


def several(site: Site, gpus: int) -> str:
    return script_for(
        site, name=JobName("kb-abcdefghijklmnopqrstuvwxyz"), gpu="H100", directory=Path("/shared/kb/a"),
        harness=Path("/shared/kb/e"), supervisor=SUPERVISOR, time_limit_s=60.0, memory_bytes=1 << 30, gpus=gpus,
        templates=shared_folders.path("sbatch_templates"),
    )  # fmt: skip


def test_a_job_on_several_gpus_asks_for_them_or_says_what_to_configure(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="doesn't say how to request 4 GPUs") as silent:
        several(sites.load(written(tmp_path, PLAIN)), 4)
    assert "Add multi" in str(silent.value.fix)
    can = PLAIN.replace("count = 3", 'multi = "--gres=gpu:h100:{n}"\nper_node = 4\ncpus = 3')
    site = sites.load(written(tmp_path, can))
    lines = several(site, 4).splitlines()
    assert {"#SBATCH --gres=gpu:h100:4", "#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=12"} <= set(lines)
    assert "#SBATCH --mem=9216M --time=3" in lines
    assert "#SBATCH --gres=gpu:h100:1" not in lines
    with pytest.raises(Misconfigured, match="needs 8 GPUs on one node, and here has 4"):
        several(site, 8)
    bare = sites.load(written(tmp_path, PLAIN.replace("count = 3", 'vendor = "none"').replace("--gres=gpu:h100:1", "")))
    assert "--cpus-per-task=8\n" in several(bare, 4), "ranks without GPUs need no request for any"


def test_a_job_has_memory_for_submission_judge_and_scratch_unless_the_file_says_how_much(tmp_path: Path) -> None:
    for text, mib in (
        (PLAIN, 3 * 1024),
        (PLAIN.replace("[paths]", '[paths]\nscratch = "3G"'), 5 * 1024),
        (PLAIN.replace("count = 3", 'memory = "7G"'), 7 * 1024),
    ):
        assert f"#SBATCH --mem={mib}M --time=" in script(written(tmp_path, text))


def test_a_place_is_as_wide_as_its_script_can_ask_for(tmp_path: Path) -> None:
    """What a slot promises, rendering keeps: a run that is claimed for a site isn't refused there for its width."""
    multi = 'multi = "--gres=gpu:h100:{n}"'
    for more, widest in {
        "": 1,
        "per_node = 4": 1,
        f"{multi}\nper_node = 4": 4,
        multi: None,
        'vendor = "none"': None,
        'vendor = "none"\nper_node = 2': 2,
    }.items():
        site = sites.load(written(tmp_path, PLAIN.replace("count = 3", more)))
        assert slurm_place(site).widest == ({} if widest is None else {"H100": widest}), more
        assert several(site, widest or 8)
        if widest is not None:
            with pytest.raises(Misconfigured, match=f"{widest + 1} GPUs"):
                several(site, widest + 1)


def test_going_without_containers_is_said_in_so_many_words(tmp_path: Path) -> None:
    bare = "untrusted = false\nranked_min_isolation = 0\n" + PLAIN + '\n[container]\nruntime = "none"\n'
    site = sites.load(written(tmp_path, bare))
    assert (site.untrusted, site.container.runtime) == (False, "none")


def test_an_images_tag_is_part_of_its_files_name(tmp_path: Path) -> None:
    for image, tag, path in (
        ("cuda.sif", "2026-11", "/shared/kb/images/cuda-2026-11.sif"),
        ("cuda.v1.sif", "b", "/shared/kb/images/cuda.v1-b.sif"),
        ("below/cuda", "b", "/shared/kb/images/below/cuda-b"),
        ("/opt/images/cuda.sif", "b", "/opt/images/cuda-b.sif"),
        ("cuda.sif", "", "/shared/kb/images/cuda.sif"),
    ):
        text = PLAIN.replace('"cuda.sif"', f'"{image}"').replace("count = 3", f'image_tag = "{tag}"')
        site = sites.load(written(tmp_path, text))
        assert site.image_of(site.gpus["H100"]) == path
        assert f"IMAGE={path}\n" in script(tmp_path / "here.toml").replace(" ", "\n")


def test_an_unknown_site_is_not_found(tmp_path: Path) -> None:
    written(tmp_path, PLAIN)
    with pytest.raises(NotFound, match="hear") as missing:
        sites.load_all(tmp_path, ["hear"])
    assert missing.value.hint == "Did you mean here?"
    with pytest.raises(Misconfigured, match="two sites"):
        sites.load_all(tmp_path, ["here", "here"])


def test_every_shipped_site_loads_and_the_schema_is_up_to_date() -> None:
    folder = shared_folders.path("site-configs")
    names = sorted(file.stem for file in folder.glob("*.toml"))
    assert len(names) == 7
    for site in sites.load_all(folder, names):
        assert site.source
        assert site.verified == "docs"
        assert (shared_folders.path("sbatch_templates") / site.template).is_file()
    assert json.loads((folder / "schema.json").read_text()) == sites.schema()


# ------------------------------------------------------------------------------------------------------------ scripts


def script(
    site_file: Path, templates: Path | None = None, *, charged: Charged | None = None, mode: Mode | None = None
) -> str:
    return script_for(
        sites.load(site_file),
        name=JobName("kb-abc"),
        gpu="H100",
        directory=Path("/shared/kb/attempts/kb-abc"),
        harness=Path("/shared/kb/eval-1"),
        supervisor=SUPERVISOR,
        time_limit_s=100,
        memory_bytes=1 << 30,
        templates=templates or shared_folders.path("sbatch_templates"),
        charged=charged,
        mode=mode,
    )


def test_what_a_centre_wants_with_each_job_is_in_its_request(tmp_path: Path) -> None:
    site = 'wckey = "kernels"\nmail = "ops@example.edu"\nmin_time = "1h"\n' + PLAIN
    found = script(written(tmp_path, site.replace("count = 3", 'licenses = "ncu:1,nvcc:2"\nnice = 50')))
    assert (
        "#SBATCH --licenses=ncu:1,nvcc:2 --nice=50 --wckey=kernels --mail-type=FAIL --mail-user=ops@example.edu\n"
        "#SBATCH --job-name=kb-abc\n"
    ) in found
    locked = PLAIN.replace("count = 3", 'gpu_freq = "1410,memory=high"')
    assert "#SBATCH --gpu-freq=1410,memory=high\n#SBATCH --job" in script(written(tmp_path, locked))
    assert "#SBATCH --wckey=kernels\n#SBATCH --job" in script(written(tmp_path, 'wckey = "kernels"\n' + PLAIN))
    assert "--time=60\n" in found
    assert "--time=4\n" in script(written(tmp_path, site), mode="test"), "a test may be shorter"
    own = site.replace("count = 3", 'min_time = "2h"')
    assert "--time=120\n" in script(written(tmp_path, own), mode="leaderboard")


def test_each_persons_account_pays_or_a_sentence_says_who_has_none(tmp_path: Path) -> None:
    file = written(tmp_path, PLAIN.replace("count = 3", 'account = "def-{person.account}_gpu"'))
    told = script(file, charged=Charged(person="ada", account="lovelace"))
    assert "#SBATCH --account=def-lovelace_gpu\n" in told
    for charged in (None, Charged(person="ada", account=None)):
        with pytest.raises(Misconfigured, match="has no cluster account") as wrong:
            script(file, charged=charged)
        assert "kbslurm user account" in (wrong.value.hint or "")


def test_a_hostile_value_stays_a_value(tmp_path: Path) -> None:
    evil = "x'; touch /tmp/owned; echo '$(id)`id`\\\\"
    text = PLAIN.replace("count = 3", f'constraint = "{evil}"\nreservation = "a b"')
    found = script(written(tmp_path, text))
    line = next(line for line in found.splitlines() if "--constraint" in line)
    assert shlex.split(line.removeprefix("#SBATCH ")) == ["--constraint=" + evil.replace("\\\\", "\\")]
    for shell in ("dash", "bash"):
        subprocess.run([shell, "-n"], input=found, text=True, check=True)


def test_a_template_that_forgets_what_must_be_is_refused(tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    templates.mkdir()
    for body, said in (
        ("#!/bin/sh\necho {{ job_name }}\n", "lacks"),
        ("#!/bin/sh\necho {{ job_nam }}\n", "undefined"),
        ("#!/bin/sh\necho {{ gpu }}\n", "can't be written"),
        ("#!/bin/sh\n{% if %}\n", "Expected"),
    ):
        (templates / "base.sbatch.j2").write_text(body)
        with pytest.raises(Misconfigured) as wrong:
            script(
                written(tmp_path, PLAIN), templates / ".." / "templates" if said == "lacks" else _copy(templates, said)
            )
        assert said.lower() in wrong.value.message.lower()


def _copy(templates: Path, name: str) -> Path:
    """A folder of its own: the environment keeps compiled templates per folder."""
    folder = templates.with_name("".join(filter(str.isalpha, name)))
    folder.mkdir()
    (folder / "base.sbatch.j2").write_text((templates / "base.sbatch.j2").read_text())
    return folder


def test_a_problem_that_needs_more_time_than_the_site_gives_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="minutes"):
        script(written(tmp_path, 'max_time = "2m"\n' + PLAIN))


@given(st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"), min_size=1))
def test_quoting_is_what_the_shell_reads(text: str) -> None:
    assert shlex.split(shell_quoted(text)) == [text]
    assert shlex.split(quoted(text.replace("@", ""))) == ([text.replace("@", "")])


def test_variables_of_the_node_are_filled_in_and_nothing_else(tmp_path: Path) -> None:
    shell = node_text("/local/$SLURM_JOB_ID/a b")
    done = subprocess.run(
        ["sh", "-c", f"printf %s {shell}"], env={"SLURM_JOB_ID": "7 $(id)"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "/local/7 $(id)/a b"


def test_the_argv_of_a_container_is_the_same_as_its_shell_text() -> None:
    command = ApptainerCommand(
        image="/i m.sif",
        vendor="amd",
        network="none",
        binds=(Bind(source="@SHM@/link", target="/link", writable=True), Bind(source="/e", target="/eval")),
        workdir="@SCRATCH@/w",
        command=("python3", "-I", "/eval", "--runner", "/link"),
    )
    argv = command.argv({"SHM": "/dev/shm/x y", "SCRATCH": "/s"})
    done = subprocess.run(
        ["sh", "-c", f"printf '%s\\0' {command.shell()}"],
        env={"SHM": "/dev/shm/x y", "SCRATCH": "/s"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\0")[:-1] == argv
    assert argv[:3] == ["apptainer", "--silent", "exec"]
    for needed in ("--containall", "--no-home", "--no-eval", "--no-privs", "--rocm"):
        assert needed in argv
    assert argv[argv.index("--net") + 1 : argv.index("--net") + 3] == ["--network", "none"]
    assert "/e:/eval:ro" in argv


@pytest.mark.parametrize("path", ["/a:b", "/a,b", "/a\nb", "", "/a\\b"])
def test_a_path_that_would_change_what_bind_means_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="bind"):
        Bind(source=path, target="/x")


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("idle", True),
        ("mixed", True),
        ("allocated+", True),
        ("down*", False),
        ("drained", False),
        ("idle+drain", False),
    ],
)
def test_a_node_is_usable_or_not(state: str, usable: bool) -> None:
    node = FleetNode(name="n", partitions=("p",), state=state, gpus={}, gpus_used={})
    assert node.usable is usable
