"""What a stranger meets first: the lock, the licence, the Makefile, the README, the wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest

from kbslurm import __version__
from tests.services import GIT, MAKE, SHELLCHECK, need, needs

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = (".ci/run", ".ci/test-fast", ".ci/wheel-check")
SOURCES = {".py", ".sql", ".toml", ".j2", ".def", ".sh", ".mako", ".yml", ".yaml", ".md"}


def tracked() -> list[Path]:
    """Every file of the project: what git knows, or in an unpacked archive what is there."""
    if (ROOT / ".git").exists():
        need(GIT)
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        names = [Path(name.decode()) for name in listed.stdout.split(b"\0") if name]
    else:
        names = [file.relative_to(ROOT) for file in ROOT.rglob("*") if file.relative_to(ROOT).parts[0] != ".venv"]
    return sorted(name for name in names if (ROOT / name).is_file())


def texts() -> list[tuple[Path, str]]:
    return [(file, (ROOT / file).read_text()) for file in tracked() if file.suffix in SOURCES or not file.suffix]


class TestLock:
    lock = (ROOT / "requirements.lock").read_text()

    def test_every_requirement_is_pinned_and_hashed(self) -> None:
        requirements = [line for line in self.lock.splitlines() if line and not line[0].isspace() and line[0] != "#"]
        assert requirements
        for line in requirements:
            assert re.fullmatch(r"[a-z0-9-]+==\S+( ; .+)? \\", line), line
        blocks = re.split(r"^(?=\S)", self.lock, flags=re.MULTILINE)
        assert all("--hash=sha256:" in block for block in blocks if block.strip())

    def test_it_names_no_host_and_no_path(self) -> None:
        assert not re.search(r"://|@|--(index|extra|find|trusted)|file:|\.whl|/", self.lock)

    def test_it_holds_every_direct_requirement_and_no_optional_one(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        locked = set(re.findall(r"^([a-z0-9-]+)==", self.lock, flags=re.MULTILINE))
        wanted = {name_of(text) for text in [*project["dependencies"], *project["optional-dependencies"]["dev"]]}
        assert wanted <= locked
        assert not locked & {"pyslurm", "torch"}
        assert "modal" not in {name_of(text) for text in project["dependencies"]}, "only its adapter needs it"

    def test_it_serves_every_python_that_is_promised(self) -> None:
        """A wheel with compiled code has one file per Python and machine: the lock holds more than this machine's."""
        psycopg = next(block for block in self.lock.split("\n\n") if "psycopg-binary==" in block)
        own = psycopg[psycopg.index("psycopg-binary==") :].split("\npydantic")[0]
        assert own.count("--hash=") >= 4 * 2


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found.group()).lower()


class TestSources:
    def test_nothing_is_left_for_later(self) -> None:
        words = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"]) + r")\b")
        found = [
            f"{file}:{number}"
            for file, text in texts()
            for number, line in enumerate(text.splitlines(), 1)
            if words.search(line)
        ]
        assert not found

    def test_no_machine_of_ours_is_named(self) -> None:
        mine = re.compile("|".join([r"/wo" + r"rk/", r"/tmp/kb-[a-z]", r"/opt/py" + "pi", r"/ro" + r"ot/\.py"]))
        found = [str(file) for file, text in texts() if mine.search(text)]
        assert not found

    def test_every_text_is_utf8_without_trailing_space_and_ends_with_a_line(self) -> None:
        for file, text in texts():
            assert "\r" not in text, f"{file} has carriage returns"
            if text:
                assert text.endswith("\n"), f"{file} does not end with a line"

    @pytest.mark.parametrize("name", SCRIPTS)
    def test_scripts_are_executable_and_bash(self, name: str) -> None:
        assert (ROOT / name).stat().st_mode & 0o111, f"{name} is not executable"
        subprocess.run(["bash", "-n", str(ROOT / name)], check=True)

    @needs(SHELLCHECK)
    @pytest.mark.parametrize("name", SCRIPTS)
    def test_scripts_pass_shellcheck(self, name: str) -> None:
        said = subprocess.run(["shellcheck", str(ROOT / name)], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stdout


class TestLicence:
    def test_it_is_apache_2_in_full(self) -> None:
        text = (ROOT / "LICENSE").read_text()
        assert "Apache License" in text and "Version 2.0, January 2004" in text
        assert "END OF TERMS AND CONDITIONS" in text and len(text) > 10_000
        assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"] == "Apache-2.0"

    def test_whatever_the_lock_brings_may_be_used(self) -> None:
        """Nothing that would force its own licence on those who link to it."""
        from importlib.metadata import distributions

        for distribution in distributions():
            stated = " ".join(distribution.metadata.get_all("License-Expression") or [])
            classifiers = distribution.metadata.get_all("Classifier") or []
            said = " ".join([stated, *(text for text in classifiers if text.startswith("License"))])
            # LGPL (psycopg) is fine: it is used as a library, unchanged and replaceable.
            assert not re.search(r"\bA?GPL|GNU (Affero )?General Public", said), distribution.name


class TestMakefile:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))

    def test_it_has_every_target_that_a_document_names(self) -> None:
        documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
        for document in documents:
            named = set(re.findall(r"`(?:sudo )?make ([a-z-]+)", document.read_text()))
            named |= set(re.findall(r"^(?:sudo )?make ([a-z-]+)", document.read_text(), flags=re.MULTILINE))
            assert named <= self.targets, f"{document.name} names {sorted(named - self.targets)}"

    @needs(MAKE)
    def test_make_test_runs_every_floor(self) -> None:
        floors = re.search(r"^FLOORS +:= (.+)$", self.makefile, flags=re.MULTILINE)
        assert floors
        for floor in floors.group(1).split():
            assert list((ROOT / "tests" / floor).glob("test_*.py")), f"tests/{floor} holds no test"
        # as typed by hand: a make that runs us would hand its own words down
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        argv = ["make", "-n", "test", "READY="]
        said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, env=env)
        assert all(f"tests/{floor}" in said.stdout for floor in floors.group(1).split())

    def test_ci_types_what_the_readme_says(self) -> None:
        ci = (ROOT / ".ci/run").read_text()
        assert "CHECKS=(types wheel-check lint demo)" in ci and 'begin_line "${ASIDE[@]}" "${CHECKS[@]}"' in ci
        typed = r'^ +lint \| types \| wheel-check \| demo\)\n +argv=\(make "\$name"\)$'
        assert re.search(typed, ci, flags=re.MULTILINE)
        # The floors in parts, side by side: together they are all of them, each once
        assert re.search(r"^ +argv=\(make \"test\$again\" \"FLOORS=\$\{FLOORS\[\$name\]\}\"", ci, flags=re.MULTILINE)
        assert 'argv+=("ARGS=-o cache_dir=.pytest_cache/$name ${ONLY[$name]:-} $SLOWEST")' in ci
        assert "ASIDE=(cluster harness faces warm contract rest)" in ci
        declared = re.search(r"^declare -A FLOORS=\(((?s:.)+?)\)$", ci, flags=re.MULTILINE)
        floors = re.search(r"^FLOORS +:= (.+)$", self.makefile, flags=re.MULTILINE)
        assert declared and floors
        of_harness = '[harness]="unit/${HARNESS[0]} flow/${HARNESS[0]} flow/${HARNESS[1]}"'
        assert of_harness in declared[1]
        of_warm = '[warm]="cluster/inside/$WARM"'
        assert of_warm in declared[1]
        others = declared[1].replace(of_harness, "").replace(of_warm, "")
        parts = {name: words.split() for name, words in re.findall(r'\[([a-z]+)\]="?([a-z ]+[a-z])"?', others)}
        assert set(parts) == {"others", "cluster", "contract", "rest"}
        # of two floors each its part, by the same patterns, which match files
        assert """declare -A ONLY=([others]="--ignore-glob='*/${HARNESS[0]}' --ignore-glob='*/${HARNESS[1]}'"\n""" in ci
        assert """    [cluster]="--ignore-glob='*/$WARM'")\n""" in ci
        assert '[faces]="${FACES[*]/#/flow/}"' in declared[1]
        assert """for one in "${FACES[@]}"; do ONLY[others]+=" --ignore-glob='*/flow/$one'"; done\n""" in ci
        (named,) = re.findall(r"^FACES=\((.+)\)$", ci, flags=re.MULTILINE)
        for face in named.replace('"', "").split():
            its = set((ROOT / "tests/flow").glob(f"{face}"))
            assert its and all(file.suffix == ".py" for file in its), face
            assert not its & {*(ROOT / "tests/flow").glob("test_harness_*"), ROOT / "tests/flow/test_adversarial.py"}
        (warm,) = re.findall(r'^WARM="(\S+)"$', ci, flags=re.MULTILINE)
        assert ROOT / "tests/cluster/inside/test_warm_storm.py" in (ROOT / "tests/cluster/inside").glob(warm)
        (patterns,) = re.findall(r'^HARNESS=\("(\S+)" "(\S+)"\)$', ci, flags=re.MULTILINE)
        found = {file for floor in ("unit", "flow") for one in patterns for file in (ROOT / "tests" / floor).glob(one)}
        assert {ROOT / "tests/flow/test_adversarial.py", ROOT / "tests/flow/test_harness_run.py"} <= found
        assert not list((ROOT / "tests/unit").glob(patterns[1])), "the step names none of these"
        assert sorted(chain(*parts.values())) == sorted(floors[1].split())

    def test_on_few_processors_ci_has_a_half_of_the_largest_floors_and_by_the_next_commit_the_other(self) -> None:
        ci = (ROOT / ".ci/run").read_text()
        assert 'HALVED=" others harness faces contract "\nif [ "$(nproc)" -ge 4 ]; then HALVED=; fi\n' in ci
        assert re.findall(r"KBSLURM_TEST_SHARE=[^\s]+.+", ci)[-1] == (
            'KBSLURM_TEST_SHARE=$((TURN % 2))/2" "${argv[@]}")'
        )
        assert 'if [[ $HALVED == *" $name "* ]] && [ -z "$again" ]; then' in ci, "of what failed nothing is left out"

    def test_ci_fetches_ray_beside_the_steps_and_what_needs_it_waits(self) -> None:
        ci = (ROOT / ".ci/run").read_text()
        steps = [line for line in ci.splitlines() if re.match(r"(step|begin_line|others|end_line)\b", line)]
        begun = steps.index("begin_line ray # a download, mostly: only the floors that need it wait for it")
        assert begun < next(n for n, line in enumerate(steps) if line.startswith("others ||"))
        assert 'end_line ray "${CHECKS[@]}"' in steps, "a download that fails fails the whole"
        assert '[[ " $NEED_RAY " == *" $name "* ]] && [ ! -e "$logs/ray.ended" ]' in ci
        (steps_of_it,) = re.findall(r'^NEED_RAY="(.+)"$', ci, flags=re.MULTILINE)
        declared = re.search(r"^declare -A FLOORS=\(((?s:.+?))\)$", ci, flags=re.MULTILINE)
        assert declared
        floors = dict(re.findall(r'\[([a-z]+)\]="?([a-z ]+[a-z])"?', declared[1]))
        waiting = {floor for step in steps_of_it.split() for floor in floors[step].split()}
        needs_it = {
            file.relative_to(ROOT / "tests").parts[0]
            for file in (ROOT / "tests").glob("*/test_*.py")
            if re.search(r"needs\(.*RAY_CLUSTER", file.read_text())
        }
        assert needs_it and needs_it <= waiting

    def test_ci_types_it_on_other_machines_too(self) -> None:
        ci = (ROOT / ".ci/run").read_text()
        laptops = dict(re.findall(r'^    \[(debian-\S+)\]="(.*)"$', ci, flags=re.MULTILINE))
        assert 'ASIDE+=(${MATRIX:+"slurm-$MATRIX"}) LAPTOPS=("${BY_TURNS[' in ci
        assert 'if [ "$HALVED" ] && [ $((TURN % 2)) -eq 0 ]; then MATRIX=; fi' in ci
        assert set(re.findall(r"^BY_TURNS=\((.+)\)$", ci, flags=re.MULTILINE)[0].split()) == set(laptops)
        assert laptops["debian-13"] == "--suite trixie"  # an ordinary user without user namespaces
        assert "--suite bookworm --user-namespaces" in laptops["debian-12"]
        assert {"--odd-path", "--read-only-home"} <= set(laptops["debian-12"].split())
        assert "--suite sid" in laptops["debian-sid"]
        assert "make demo && make test ARGS=" in ci

    @needs(GIT)
    def test_three_debians_take_turns_and_each_runs_every_test_in_the_end(self, tmp_path: Path) -> None:
        ci = (ROOT / ".ci/run").read_text()
        chosen = re.search(r"^TURN=(?s:.+?)^LAPTOPS=\(\)$", ci, flags=re.MULTILINE)
        whose = re.search(r'LAPTOPS=\("(\$\{BY_TURNS\[.+?\]\})"\)', ci)
        assert chosen and whose
        git = [
            "git",
            "-C",
            str(tmp_path / "all"),
            "-c",
            "user.name=n",
            "-c",
            "user.email=e",
            "-c",
            "commit.gpgsign=false",
        ]
        subprocess.run([*git[:1], "init", "-q", str(tmp_path / "all")], check=True)

        def turn(place: str) -> str:
            argv = ["bash", "-euo", "pipefail", "-c", f'{chosen[0]}\none={whose[1]}\necho "$one $(share_of "$one")"']
            return subprocess.run(argv, cwd=tmp_path / place, capture_output=True, text=True, check=True).stdout.strip()

        taken = set()
        for _ in range(48):
            subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "another"], check=True)
            taken.add(turn("all"))
        shares = {"debian-13": 16, "debian-12": 16, "debian-sid": 4}
        assert taken == {f"{one} {n}/{of}" for one, of in shares.items() for n in range(of)}
        # A shallow clone, such as GitHub's, can't count the commits.
        source = f"file://{tmp_path / 'all'}"
        subprocess.run(["git", "clone", "-q", "--depth=1", source, str(tmp_path / "last")], check=True)
        assert turn("last") in taken
        named = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
        its, _, share = turn("last").partition(" ")
        assert share == f"{int(named[:7], 16) // 3 % shares[its]}/{shares[its]}"

    @needs(MAKE)
    def test_an_old_python_is_refused_in_one_sentence(self, tmp_path: Path) -> None:
        old = tmp_path / "python2"
        old.write_text('#!/bin/sh\ncase "$1" in -V) echo Python 3.10.1;; *) exit 1;; esac\n')
        old.chmod(0o755)
        for name in ("Makefile", "requirements.lock", "pyproject.toml", "hatch_build.py"):
            (tmp_path / name).write_text((ROOT / name).read_text())
        argv = ["make", "venv", f"PYTHON={old}"]
        said = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert said.returncode == 2
        assert f"kbslurm needs Python 3.11 or newer, but {old} is Python 3.10.1" in said.stderr
        assert not (tmp_path / ".venv").exists()

    @needs(MAKE)
    def test_a_python_without_pyslurm_is_told_in_one_sentence(self) -> None:
        argv = ["make", "-s", "test-pyslurm", "READY=", f"PYSLURM_PYTHON={sys.executable}"]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        said = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        assert said.returncode == 2
        assert f"{sys.executable} doesn't have pyslurm" in said.stderr and "PYSLURM_PYTHON=" in said.stderr
        assert not said.stdout


class TestCi:
    steps = (ROOT / ".ci/run").read_text().partition("\nsay() ")[2].partition("\n# ----")[0]

    def test_a_step_is_charged_nothing_of_what_goes_on_beside_it(self, tmp_path: Path) -> None:
        """What the lines of steps beside it took came into the figure of the step in whose time they ended."""
        (tmp_path / "beside.py").write_text(
            "import sys, time\nwith open(sys.argv[1], 'w'):\n    while time.process_time() < 3:\n        pass\n"
        )
        script = f"""set -euo pipefail
logs=$1 table=() running=
say() {self.steps}
mkfifo "$logs/ends"
"$2" "$logs/beside.py" "$logs/ends" &
step waits 300 bash -c 'cat "$0"; sleep 1' "$logs/ends"
step computes 300 "$2" -c 'import time
while time.process_time() < 3: pass'
step fails 300 false || echo "it ended with $?"
step hangs 1 sleep 300 || echo "it ended with $?"
printf '%s\n' "${{table[@]}}"
"""
        argv = ["bash", "-c", script, "bash", str(tmp_path), sys.executable]
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        found = dict(re.findall(r"^(waits|computes) +passed +\d+ s +(\d+) s$", said, flags=re.MULTILINE))
        assert int(found["waits"]) <= 1 and int(found["computes"]) >= 2, said
        assert "it ended with 1\n" in said and "it ended with 124\n" in said and "after its limit of 1 s" in said
        assert re.search(r"^fails +FAILED \(1\) ", said, flags=re.MULTILINE), said


class TestWheel:
    @pytest.fixture(scope="class")
    @staticmethod
    def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
        place = tmp_path_factory.mktemp("wheel")
        argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
        argv += ["--no-build-isolation", "--wheel-dir", str(place), str(ROOT)]
        said = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
        assert said.returncode == 0, said.stderr
        return next(place.glob("kbslurm-*.whl"))

    def test_it_holds_the_whole_project_and_nothing_else(self, wheel: Path) -> None:
        said = subprocess.run(
            [sys.executable, str(ROOT / ".ci/wheel_contents.py"), str(wheel)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr

    def test_its_harness_is_the_checkouts_file_by_file(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            prefix = "kbslurm/_share/eval/"
            packed = {
                name.removeprefix(prefix): archive.read(name) for name in archive.namelist() if name.startswith(prefix)
            }
        own = {
            str(file.relative_to("eval")): (ROOT / file).read_bytes() for file in tracked() if file.parts[0] == "eval"
        }
        assert packed == own

    def test_its_version_is_the_packages(self, wheel: Path) -> None:
        assert wheel.name.startswith(f"kbslurm-{__version__}-")
        assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
