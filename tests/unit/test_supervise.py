"""The supervisor of a site's jobs as a file: one text for all of them, staged and digested with the harness."""

from __future__ import annotations

import hashlib
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kbslurm.backends.github import repository_files, runner_program
from kbslurm.backends.slurm.staged_harness import stage
from kbslurm.config import shared_folders, sites
from kbslurm.domain.run import JobName
from kbslurm.domain.site import Site
from kbslurm.errors import Misconfigured
from kbslurm.flow.script import KEEPER, SUPERVISOR, harness_digest, node_text, script_for, supervisor_digest
from tests.services import DASH, SHELLCHECK, needs

FILE = shared_folders.eval_dir() / SUPERVISOR
BOTH = [FILE, shared_folders.eval_dir() / KEEPER]
TEMPLATES = shared_folders.path("sbatch_templates")


@pytest.mark.parametrize("file", BOTH, ids=lambda file: file.stem)
@pytest.mark.parametrize("shell", [pytest.param("dash", marks=needs(DASH)), "bash", "sh"])
def test_it_is_posix_shell(shell: str, file: Path) -> None:
    done = subprocess.run([shell, *(["--posix"] if shell == "bash" else []), "-n", str(file)], check=False)
    assert done.returncode == 0
    code = "\n".join(line for line in file.read_text().splitlines() if not line.lstrip().startswith("#"))
    assert not re.search(r"\[\[|^\s*(local|function|source)\s|<<<|\$'|&>", code, re.MULTILINE)


@needs(SHELLCHECK)
@pytest.mark.parametrize("file", BOTH, ids=lambda file: file.stem)
def test_shellcheck_has_nothing_to_say_of_it(file: Path) -> None:
    done = subprocess.run(["shellcheck", "--shell=sh", str(file)], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", BOTH, ids=lambda file: file.stem)
def test_what_a_shell_reads_of_it_is_what_lies_there(file: Path) -> None:
    """`$(cat FILE)` drops NUL bytes and the line ends at its end; sha256sum of the file says the same digest."""
    raw = file.read_bytes()
    assert raw.isascii() and b"\0" not in raw and raw.endswith(b"\n") and not raw.endswith(b"\n\n")
    reading = 'text=$(cat "$1"); printf "%s\\n" "$text" | sha256sum'
    done = subprocess.run(["sh", "-c", reading, "sh", str(file)], text=True, capture_output=True, check=True)
    assert done.stdout == f"{supervisor_digest(file.parent, file.name)}  -\n"


def test_every_site_gets_the_same_bytes_and_every_job_their_digest(tmp_path: Path) -> None:
    folder = shared_folders.path("site-configs")
    names = sorted(file.stem for file in folder.glob("*.toml"))
    for site in sites.load_all(folder, names):
        harness = stage(shared_folders.eval_dir(), tmp_path / site.name / "eval")
        assert (harness / SUPERVISOR).read_bytes() == FILE.read_bytes()
        assert (harness / SUPERVISOR).stat().st_mode & 0o777 == 0o444
        for gpu in site.gpus:
            assert f"{hashlib.sha256(FILE.read_bytes()).hexdigest()}  -" in _script(site, gpu, harness)


def test_a_harness_with_another_supervisor_is_another_harness(tmp_path: Path) -> None:
    shutil.copytree(shared_folders.eval_dir(), tmp_path / "eval", ignore=shutil.ignore_patterns("__pycache__"))
    assert harness_digest(tmp_path / "eval") == harness_digest(shared_folders.eval_dir())
    with (tmp_path / "eval" / SUPERVISOR).open("a") as file:
        file.write("# a new one\n")
    assert harness_digest(tmp_path / "eval") != harness_digest(shared_folders.eval_dir())


def test_no_variable_of_a_site_gets_in_the_way_of_script_or_supervisor(tmp_path: Path) -> None:
    texts = FILE.read_text() + (TEMPLATES / "base.sbatch.j2").read_text()
    ours = set(re.findall(r"(?:^|[\s(])([A-Z][A-Z0-9_]*)=", texts, re.MULTILINE)) - {"KB_ATTEMPT", "USER"}
    assert {"DIR", "SHM", "LIMIT_S", "MARK", "PATH", "SUPERVISOR", "GPU_OPTION"} <= ours
    plain = (shared_folders.path("site-configs") / "bouchet.toml").read_text()
    for name in sorted(ours):
        (tmp_path / "here.toml").write_text(plain.replace("[paths]", f'[exports]\n{name} = "x"\n[paths]'))
        with pytest.raises(Misconfigured, match="can't be set in the job"):
            sites.load(tmp_path / "here.toml")


def test_the_digests_of_a_report_and_of_a_lent_repository_tell_of_it_too(tmp_path: Path) -> None:
    lent = repository_files.files(shared_folders.eval_dir())
    assert lent[f"{repository_files.FOLDER}/eval/{SUPERVISOR}"] == FILE.read_bytes()
    shutil.copytree(shared_folders.eval_dir(), tmp_path / "eval", ignore=shutil.ignore_patterns("__pycache__"))

    def digests() -> tuple[str, str]:
        said = [sys.executable, "-I", "-B", str(tmp_path / "eval"), "--digest"]
        done = subprocess.run(said, text=True, capture_output=True, check=True)
        return done.stdout, runner_program.harness_digest(tmp_path / "eval")

    before = digests()
    (tmp_path / "eval" / SUPERVISOR).write_text("# another one\n")
    assert not set(before) & set(digests())


def _script(site: Site, gpu: str, harness: Path) -> str:
    return script_for(
        site,
        name=JobName("kb-abc"),
        gpu=gpu,
        directory=Path("/shared/kb/attempts/kb-abc"),
        harness=harness,
        supervisor=supervisor_digest(shared_folders.eval_dir()),
        time_limit_s=100,
        memory_bytes=1 << 30,
        templates=TEMPLATES,
    )


def _supervised(place: Path, words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What these words do once the supervisor is there, in an attempt's folder and with a foreign `SCRATCH`."""
    (place / "attempt").mkdir()
    (place / "shm").mkdir()
    begun = f'eval "$(cat "{FILE}")"; JOB=7 NODE=n DIR="{place}/attempt" EVAL="{FILE.parent}" SHM_ROOT="{place}/shm"'
    argv = ["sh", "-c", f"{begun}; {words}"]
    return subprocess.run(argv, env={"PATH": "/usr/bin:/bin", **env}, text=True, capture_output=True, check=False)


def test_a_scratch_folder_that_a_module_named_is_never_removed(tmp_path: Path) -> None:
    """Clusters' modules set SCRATCH to the account's own folder, between the supervisor's first line and set_up."""
    theirs = tmp_path / "scratch" / "account"
    theirs.mkdir(parents=True)
    (theirs / "thesis.tex").write_text("years")
    module = f'export SCRATCH="{theirs}" SHM="{theirs}"'
    early = _supervised(tmp_path, f"{module}; finish setup 1 71 'a module can not be loaded'")
    assert early.returncode == 71 and (theirs / "thesis.tex").exists()
    later = tmp_path / "later"
    later.mkdir()
    needs = "SCRATCH_ROOT= SCRATCH_NEEDS= RUNTIME=none SCRATCH_MB=1"
    late = _supervised(later, f"{module}; {needs}; set_up; finish judge 0 0")
    assert late.returncode == 0 and (theirs / "thesis.tex").exists()
    assert not list((later / "shm").iterdir())


def test_a_scratch_path_that_is_one_unset_variable_is_the_nodes_fault(tmp_path: Path) -> None:
    words = f"set -u; SCRATCH_ROOT={node_text('$L_SCRATCH_JOB')} SCRATCH_NEEDS=L_SCRATCH_JOB; set_up; exit 0"
    ended = _supervised(tmp_path, words)
    assert ended.returncode == 71, ended.stderr
    assert '"cause":"setup"' in (tmp_path / "attempt" / "exit.json").read_text()
    assert "a variable of the path of the scratch folder is not set" in ended.stderr


def test_no_core_is_left_and_the_harness_may_allow_a_byte_of_one(tmp_path: Path) -> None:
    """With a limit of 0 each crash starts the node's own handler, and what is lowered for good only root can raise."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    words = "SCRATCH_ROOT= SCRATCH_NEEDS=; set_up; ulimit -S -c; ulimit -H -c"
    said = _supervised(tmp_path, words).stdout.split()
    assert said == ["0", "unlimited" if hard == resource.RLIM_INFINITY else str(hard // 512)]
