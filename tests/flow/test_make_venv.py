"""`make venv` before anything is installed: it says what it does, and a failed download says what to try."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def made(root: Path, place: Path, lock: Path, **around: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        [sys.executable, str(root / ".ci/make_venv.py"), str(place), str(lock)],
        env={**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", **around},
        capture_output=True,
        text=True,
        check=False,
    )


def a_wheel(folder: Path) -> str:
    """A package of one file; its hash."""
    wheel = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_it_says_what_it_is_doing(root: Path, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"tiny==1.0 --hash=sha256:{a_wheel(tmp_path)}\n")
    done = made(root, tmp_path / "venv", lock, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stderr.splitlines()] == ["making", "downloading", "installing", "ready"]
    assert list((tmp_path / "venv").glob("lib/python3*/site-packages/tiny.py"))


@pytest.mark.parametrize(
    ("digest", "around", "advice"),
    [
        ("", {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}, "Check the network"),
        ("0" * 64, {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "{here}"}, "different file than the one in the lock"),
    ],
    ids=["no answer", "another file"],
)
def test_a_failure_says_what_to_try(
    root: Path, tmp_path: Path, digest: str, around: dict[str, str], advice: str
) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"tiny==1.0 --hash=sha256:{digest or a_wheel(tmp_path)}\n")
    a_wheel(tmp_path)
    told = {name: value.format(here=tmp_path) for name, value in around.items()}
    done = made(root, tmp_path / "venv", lock, **told)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2, done.stderr
    assert advice in last
    assert last.endswith("Then run make again.")
    assert "Traceback" not in done.stderr


def test_another_checkouts_environment_is_left_alone(root: Path, tmp_path: Path) -> None:
    """A second worktree with a link to it emptied it, whoever used it meanwhile. A link to anywhere else is fine."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    for checkout in (theirs, mine):
        checkout.mkdir()
        for name in ("Makefile", "pyproject.toml", "requirements.lock", "hatch_build.py"):
            (checkout / name).write_text((root / name).read_text())
    (theirs / ".venv").mkdir()
    (theirs / ".venv/kept").touch()
    (mine / ".venv").symlink_to(theirs / ".venv")
    done = subprocess.run(["make", "venv"], cwd=mine, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and ".venv is a link to another checkout's environment" in done.stderr, done.stderr
    assert (theirs / ".venv/kept").exists()
    (mine / ".venv").unlink()
    (tmp_path / "scratch").mkdir()
    (mine / ".venv").symlink_to(tmp_path / "scratch")
    done = subprocess.run(["make", "venv"], cwd=mine, capture_output=True, text=True, check=False)
    assert "link" not in done.stderr and "make_venv.py" in done.stderr, "it has come to the script, which isn't here"
