"""What a machine lacks is told once, at the end, with the way to get it; and nothing is skipped in any other way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import services
from tests.services import CHROMIUM, GXX, OF_MAKE_TEST, POSTGRES, SHELLCHECK, USER_NAMESPACES, needs

ROOT = Path(__file__).resolve().parents[2]
SHELL = "tests/golden/test_sbatch.py::test_shellcheck_has_nothing_to_say"
COMPILED = "tests/flow/test_problem_shapes.py::test_a_compiled_problem_is_ranked"
PLAIN = "tests/golden/test_sbatch.py::test_no_golden_script_is_left_over"


def run(folder: Path, *arguments: str, ci: str = "") -> tuple[int, list[str]]:
    """These tests in a pytest of their own that finds no program at all; the lines that it closes with."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        argv, cwd=ROOT, env={**env, "PATH": str(folder), "CI": ci}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


def test_the_closing_lines_say_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    code, said = run(tmp_path, SHELL, COMPILED, PLAIN)
    assert code == 0
    assert said[-1] == "1 passed, 0 failed, 2 skipped"
    head = said.index("2 things are missing, so 2 tests were skipped:")
    assert {line.split()[0] for line in said[head + 1 : head + 3]} == {"g++", "shellcheck"}
    assert said[head + 1].endswith(f"1  {_typed('apt-get install')} {said[head + 1].split()[0]}")
    assert re.fullmatch(rf"All of what apt has, at once: {_typed('apt-get install')} \S+ \S+", said[head + 3])
    assert not [line for line in said if line.startswith("SKIPPED")], "426 of them say less than these lines"


def test_one_thing_is_one(tmp_path: Path) -> None:
    _, said = run(tmp_path, "-q", SHELL, PLAIN)
    head = said.index("1 thing is missing, so 1 test was skipped:")
    assert said[head + 1] == f"  shellcheck     1  {_typed('apt-get install shellcheck')}"
    assert not [line for line in said if "at once" in line]
    assert said[-1] == "1 passed, 0 failed, 1 skipped"


@pytest.mark.parametrize("arguments", [(PLAIN,), (PLAIN, SHELL, "-k", "left_over"), (SHELL, "--collect-only")])
def test_where_nothing_was_skipped_nothing_is_said(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, said = run(tmp_path, *arguments)
    assert code == 0
    assert not [line for line in said if "missing" in line or "apt-get" in line]
    assert (said[-1] == "1 passed, 0 failed") == ("--collect-only" not in arguments)


def test_in_ci_it_fails(tmp_path: Path) -> None:
    code, said = run(tmp_path, SHELL, COMPILED, PLAIN, ci="true")
    assert code == 1
    assert said[-1] == "1 passed, 2 failed"
    assert "missing here: g++" in said


def test_what_needs_two_things_is_counted_for_each_and_the_most_wanted_comes_first() -> None:
    reasons = ["Skipped: missing here: shellcheck", *["Skipped: missing here: g++, user namespaces"] * 2]
    said = services.closing_lines([*reasons, "Skipped: missing here: g++", "missing here: Chromium"])
    assert said[0] == "4 things are missing, so 5 tests were skipped:"
    counts = [re.split(r"  +", line.strip())[:2] for line in said[1:5]]
    assert counts == [["g++", "3"], ["user namespaces", "2"], ["shellcheck", "1"], ["Chromium", "1"]]
    wanted = " ".join(package for one in (GXX, SHELLCHECK, CHROMIUM) for package in one.packages)
    assert said[5:] == [f"All of what apt has, at once: {_typed(f'apt-get install {wanted}')}"]


def test_what_was_found_by_trying_is_told_where_no_command_is_known() -> None:
    trouble = services.sentence(POSTGRES, "initdb ended with 1: no space left, it said")
    said = services.closing_lines([trouble, "Skipped: nothing to test here: this machine has a GPU", "something else"])
    assert said == [
        "1 thing is missing, so 1 test was skipped:",
        "  Postgres     1  initdb ended with 1: no space left, it said",
        "1 test had nothing to test here: this machine has a GPU",
    ]


@pytest.mark.parametrize(
    ("switch", "off", "on"),
    [
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ],
)
def test_what_turned_user_namespaces_off_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str, off: str, on: str
) -> None:
    monkeypatch.setattr(services, "SYSCTLS", tmp_path)
    monkeypatch.setattr(services, "_namespaces", lambda: False)
    assert "container" in USER_NAMESPACES.how_here
    (tmp_path / switch).parent.mkdir()
    (tmp_path / switch).write_text(f"{off}\n")
    assert USER_NAMESPACES.how_here == _typed(f"sysctl -w {on}")


def test_every_skip_goes_through_the_services() -> None:
    """Any other one would be missing from the closing lines, and wouldn't fail in CI."""
    other = re.compile(r"pytest\.(skip|importorskip)\(|mark\.skip|unittest|SkipTest")
    own = {Path(__file__), ROOT / "tests/services.py"}
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if file not in own
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if other.search(line)
    ]
    assert not found


def test_contributors_read_of_every_service() -> None:
    table = "\n".join(services.table())
    assert table in (ROOT / "CONTRIBUTING.md").read_text(), f"its table should be:\n{table}"


def test_ci_installs_whatever_a_service_needs() -> None:
    listed = re.search(r"^PACKAGES=\(([^)]*)\)", (ROOT / ".ci/run").read_text(), flags=re.MULTILINE)
    assert listed is not None
    wanted = {package for one in OF_MAKE_TEST for package in one.packages}
    assert wanted <= set(listed[1].split()), "PACKAGES in .ci/run lacks some"


def test_machines_can_share_the_tests() -> None:
    def taken(share: str) -> set[str]:
        argv = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--collect-only",
            "-q",
            "tests/unit/test_placement.py",
        ]
        env = {**os.environ, "KBSLURM_TEST_SHARE": share}
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
        return {line for line in done.stdout.splitlines() if line.startswith("tests/")}

    whole, shares = taken(""), [taken(f"{share}/3") for share in range(3)]
    assert all(shares) and set().union(*shares) == whole and sum(map(len, shares)) == len(whole)


def _typed(command: str) -> str:
    return command if os.geteuid() == 0 else f"sudo {command}"


SMALL_TMP = """
import os, sys
from tests.cluster import tree_namespaces
tree_namespaces.mount("none", sys.argv[1], "tmpfs", 0, "size=4m")
os.environ["TMPDIR"] = sys.argv[1]
os.execv(sys.executable, [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", sys.argv[2]])
"""


@needs(USER_NAMESPACES)
def test_without_room_for_temporary_files_one_sentence_says_so(tmp_path: Path) -> None:
    full = tmp_path / "tmp"
    full.mkdir()
    argv = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", SMALL_TMP, str(full), PLAIN]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stderr
    (said,) = (done.stdout + done.stderr).strip().splitlines()
    assert said.startswith(f"ERROR: The tests need {services.ROOM_MB} MB for temporary files, but {full} has only 4 MB")
    assert "TMPDIR" in said
