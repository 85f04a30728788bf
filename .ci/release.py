"""Checks a release and, if a version is given, makes it: `python .ci/release.py [VERSION]`.

Without VERSION nothing changes: it says whether version, changelog and citation agree, builds wheel and sdist in a
temporary folder and looks into both. With VERSION it writes that version down, checks the same things, leaves both
archives in dist/, commits, and tags. It pushes nothing and uploads nothing. Exit codes: 0 all fine, 2 not.
"""

from __future__ import annotations

import datetime
import email
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import wheel_contents

ROOT = Path(__file__).resolve().parents[1]
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)((a|b|rc)[1-9]\d*)?")
OF_PACKAGE = re.compile(r'(?m)^__version__ = "([^"]+)"$')
OF_CHANGELOG = re.compile(r"(?m)^## (\S+) – (\S+)$")
OF_CITATION = re.compile(r"(?m)^version: (\S+)$")
DATE_OF_CITATION = re.compile(r"(?m)^date-released: \S+\n")
# What an unpacked sdist needs, so that the tests run there and a wheel can be built from it.
SDIST = (
    "LICENSE", "CHANGELOG.md", "Makefile", "PKG-INFO", "README.md", "pyproject.toml", "hatch_build.py",
    "requirements.lock", "alembic/env.py", "bot/kbslurm_bot/__init__.py", "docs/walk.md",
    "eval/kbslurm_eval/shared/wire.py", "kbslurm/__init__.py", "tests/conftest.py",
)  # fmt: skip


NEVER = re.compile(r"(^|/)(\.env|\.venv|__pycache__)(/|$)|\.sif$")


class Wrong(Exception):
    """Why the release can't be made, as a sentence."""


def stated(root: Path, *, released: bool) -> str:
    """The version that package, changelog and citation agree on."""
    version = _found(OF_PACKAGE, root / "kbslurm" / "__init__.py")
    if not VERSION.fullmatch(version):
        raise Wrong(f"{version} isn't a version like 1.2.3 or 1.2.3rc1")
    changelog = (root / "CHANGELOG.md").read_text()
    newest = OF_CHANGELOG.search(changelog)
    if newest is None or newest[1] != version:
        raise Wrong(f"CHANGELOG.md doesn't begin with “## {version} – …”")
    if released and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", newest[2]):
        raise Wrong(f"CHANGELOG.md doesn't say when {version} was released")
    if not re.split(r"(?m)^## ", changelog[newest.end() :])[0].strip():
        raise Wrong(f"CHANGELOG.md has no entries for {version}")
    if (cited := _found(OF_CITATION, root / "CITATION.cff")) != version:
        raise Wrong(f"CITATION.cff has version {cited}, but the package has {version}")
    return version


def write_down(root: Path, version: str, day: str) -> None:
    """Package, changelog and citation say that `version` was released on `day`."""
    package, changelog, citation = root / "kbslurm" / "__init__.py", root / "CHANGELOG.md", root / "CITATION.cff"
    newest = OF_CHANGELOG.search(changelog.read_text())
    if newest is None or newest[2] != "unreleased":
        raise Wrong("CHANGELOG.md doesn't begin with “## … – unreleased”: there is nothing to release")
    package.write_text(OF_PACKAGE.sub(f'__version__ = "{version}"', package.read_text(), count=1))
    changelog.write_text(OF_CHANGELOG.sub(f"## {version} – {day}", changelog.read_text(), count=1))
    cited = DATE_OF_CITATION.sub("", citation.read_text())
    citation.write_text(OF_CITATION.sub(f"version: {version}\ndate-released: {day}", cited, count=1))


def build(root: Path, place: Path) -> tuple[Path, Path]:
    """Wheel and sdist of the checkout, and the wheel again from the sdist: both ways bring the same files."""
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(place)], root)
    wheel, sdist = next(place.glob("*.whl")), next(place.glob("*.tar.gz"))
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(sdist) as archive:
            # Python 3.11.2, which Debian 12 has, knows no filters yet; the archive is our own.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(unpacked)  # noqa: S202
        (source,) = Path(unpacked).iterdir()
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(source / "again")], source)
        other = _names(next((source / "again").glob("*.whl")))
    if differing := set(_names(wheel)) ^ set(other):
        raise Wrong(f"a wheel from the sdist has other files: {', '.join(sorted(differing)[:5])}")
    return wheel, sdist


def check_archives(wheel: Path, sdist: Path, version: str) -> None:
    """Each holds the project, nothing else, and says the same of it as pyproject.toml."""
    said = wheel_contents.complaints(_names(wheel))
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    said += [f"the sdist lacks {name}" for name in SDIST if name not in names]
    said += [
        f"the sdist holds {name}" for name in names if re.search(r"(^|/)(\.env|\.venv|__pycache__)(/|$)|\.sif$", name)
    ]
    if not (wheel.name.startswith(f"kbslurm-{version}-") and sdist.name == f"kbslurm-{version}.tar.gz"):
        raise Wrong(f"{wheel.name} and {sdist.name} have a different version than {version}")
    with zipfile.ZipFile(wheel) as packed:
        metadata = email.message_from_bytes(packed.read(f"kbslurm-{version}.dist-info/METADATA"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        "Name": project["name"], "Version": version, "Requires-Python": project["requires-python"],
        "License-Expression": project["license"], "Author": project["authors"][0]["name"],
    }  # fmt: skip
    said += [f"the wheel's {name} is {metadata[name]}" for name, value in wanted.items() if metadata[name] != value]
    if len(metadata.get_all("Project-URL") or []) != len(project["urls"]):
        said.append("the wheel doesn't name every address of the project")
    if said:
        raise Wrong("; ".join(said))


def main(argv: Sequence[str]) -> int:
    try:
        if argv and argv[0]:
            _make(argv[0])
        else:
            _rehearse()
    except Wrong as wrong:
        print(f"release: {wrong}", file=sys.stderr)
        return 2
    return 0


def _rehearse() -> None:
    version = stated(ROOT, released=False)
    _say(f"version, changelog and citation agree on {version}")
    with tempfile.TemporaryDirectory() as place:
        wheel, sdist = build(ROOT, Path(place))
        check_archives(wheel, sdist, version)
        _say(f"{wheel.name} and {sdist.name} are in order")
    _say(f"nothing was changed; make release VERSION={version} dates, commits and tags v{version}")


def _make(version: str) -> None:
    if not VERSION.fullmatch(version):
        raise Wrong(f"{version} isn't a version like 1.2.3 or 1.2.3rc1")
    if _run(["git", "status", "--porcelain"], ROOT):
        raise Wrong("there are uncommitted changes")
    if _run(["git", "tag", "--list", f"v{version}"], ROOT):
        raise Wrong(f"the tag v{version} already exists")
    try:
        write_down(ROOT, version, datetime.datetime.now(datetime.UTC).date().isoformat())
        with tempfile.TemporaryDirectory() as place:
            wheel, sdist = build(ROOT, Path(place))
            check_archives(wheel, sdist, stated(ROOT, released=True))
            (ROOT / "dist").mkdir(exist_ok=True)
            for archive in (wheel, sdist):
                shutil.copy2(archive, ROOT / "dist" / archive.name)
        _run(["git", "commit", "--quiet", "--all", "--message", f"Release {version}"], ROOT)
    except Wrong:
        _run(["git", "checkout", "--quiet", "--", "kbslurm/__init__.py", "CHANGELOG.md", "CITATION.cff"], ROOT)
        raise
    _run(["git", "tag", "--annotate", f"v{version}", "--message", f"kbslurm {version}"], ROOT)
    _say(f"committed and tagged v{version}; {wheel.name} and {sdist.name} are in dist/. Push and upload them yourself.")


def _found(pattern: re.Pattern[str], file: Path) -> str:
    found = pattern.search(file.read_text())
    if found is None:
        raise Wrong(f"{file.name} doesn't contain its version")
    return found[1]


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def _run(argv: Sequence[str], place: Path) -> str:
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Wrong(f"{' '.join(argv[:4])} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout.strip()


def _say(sentence: str) -> None:
    print(f"release: {sentence}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
