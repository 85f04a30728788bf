"""A scanner for where there is none, and for what the real one can't be made to do: a package `kernelguard` in an
environment of its own, which the service finds and starts as it would the real one.

What it reads says what it does: `FLAG RULE` is flagged, `WAIT FOLDER` waits until there is a file `gate` in the folder,
after it has left its number there, and `STALL`, `GORGE`, `SHOUT`, `BABBLE` and `ENVIRON` are as they sound.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

PROGRAM = r"""
import json, os, pathlib, re, sys, time

assert sys.argv[1:] == ["--api-mode"], sys.argv
text = sys.stdin.read()
for folder in re.findall(r"WAIT (\S+)", text):
    pathlib.Path(folder, str(os.getpid())).touch()
    while not pathlib.Path(folder, "gate").exists():
        time.sleep(0.01)
if "STALL" in text:
    while True:
        pass
if "GORGE" in text:
    held = bytearray(4 << 30)
if "SHOUT" in text:
    for _ in range(64):
        sys.stdout.write(" " * (1 << 20))
if "BABBLE" in text:
    sys.exit("no JSON")
found = [
    {"pattern": rule, "severity": "high", "evidence": line.strip()}
    for line in text.splitlines() for rule in re.findall(r"FLAG (\S+)", line)
]
if "ENVIRON" in text:
    found.append({"pattern": "ENVIRON", "severity": "low", "evidence": " ".join(sorted(os.environ))})
word = "hacked" if found else "clean"
print(json.dumps({"matched_patterns": found, "classification": word, "should_filter": bool(found)}))
"""


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Install it for this test."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    paths = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    package = site / "kernelguard"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PROGRAM)
    told = site / "kernelguard-9.9.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: kernelguard\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    importlib.invalidate_caches()


def remove(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is installed in this test, whatever the machine has."""
    monkeypatch.setattr("kbslurm.kernelguard.scanner.SCANNER", "kernelguard_that_is_not_there")
