"""What contributors lean on: continuous integration, forms, hooks, the docs site, a release, and tests that assert."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from kbslurm import __version__
from tests.services import GIT, SHELLCHECK, needs

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CI = ROOT / ".github" / "workflows" / "ci.yml"
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def ours(name: str) -> ModuleType:
    """A script of .ci as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("citation-file-format", "CITATION.cff"),
    ],
)
def test_what_a_host_of_repositories_reads_is_as_it_wants_it(schema: str, files: str) -> None:
    found = [str(file) for file in sorted(ROOT.glob(files))]
    assert found
    argv = [sys.executable, "-m", "check_jsonschema", "--no-cache", "--builtin-schema", f"vendor.{schema}", *found]
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


class TestContinuousIntegration:
    text = CI.read_text()
    workflow: dict[Any, Any] = yaml.safe_load(text)
    jobs: dict[str, Any] = workflow["jobs"]

    def test_it_may_only_read_and_has_no_secret(self) -> None:
        assert self.workflow["permissions"] == {"contents": "read"}
        assert "secrets." not in self.text and "pull_request_target" not in self.text
        assert not [job for job in self.jobs.values() if "permissions" in job]

    def test_every_action_is_pinned_to_a_commit(self) -> None:
        used = re.findall(r"uses: *(\S+)(.*)", self.text)
        assert used
        for action, comment in used:
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{action}: say which version that is"
        takes = [step for job in self.jobs.values() for step in job["steps"] if "checkout@" in step.get("uses", "")]
        assert all(step["with"] == {"persist-credentials": False} for step in takes)

    def test_everything_runs_as_root_in_a_container_of_debian(self) -> None:
        job = self.jobs["ci"]
        assert job["container"] == {"image": "debian:13", "options": "--privileged"}
        assert job["steps"][-1]["run"] == ".ci/run"

    def test_each_python_that_is_promised_runs_the_small_floors_as_an_ordinary_user(self) -> None:
        job = self.jobs["laptop"]
        promised = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", text)]
        assert job["strategy"]["matrix"] == {"python": promised}
        assert "container" not in job
        typed = [step.get("run", "") for step in job["steps"]]
        assert 'make test FLOORS="unit golden architecture"' in typed
        assert not [line for line in typed if "sudo" in line and "apt-get" not in line]

    def test_it_types_only_targets_that_are_there(self) -> None:
        typed = re.findall(r"^ +run: make (.+)$", self.text, flags=re.MULTILINE)
        assert typed
        named = {word for line in typed for word in line.split(" FLOORS")[0].split()}
        assert named <= TARGETS

    @needs(SHELLCHECK)
    def test_its_scripts_hold_nothing_of_others_and_pass_shellcheck(self) -> None:
        for job in self.jobs.values():
            assert job["timeout-minutes"] > 0
            for step in job["steps"]:
                script = step.get("run", "")
                assert "${{" not in script, step["name"]
                argv = ["shellcheck", "--shell=bash", "-"]
                said = subprocess.run(argv, input=script, capture_output=True, text=True, check=False)
                assert said.returncode == 0, said.stdout


def test_a_report_of_a_hole_goes_to_the_maintainers_alone() -> None:
    security = (ROOT / "SECURITY.md").read_text()
    assert "Report a vulnerability" in security and "threat-model.md" in security
    (cheat, _) = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text())["contact_links"]
    assert cheat["url"] == f"{PROJECT['urls']['Homepage']}/security/advisories/new"
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert not re.search(r"\S@\S+\.\w", (ROOT / name).read_text()), f"{name} names a person's address"


def test_the_project_is_called_the_same_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    site = yaml.safe_load((ROOT / "properdocs.yml").read_text())
    home = PROJECT["urls"]["Homepage"]
    assert PROJECT["authors"] == [{"name": "The kbslurm authors"}] == cited["authors"]
    assert (cited["version"], cited["license"], cited["keywords"]) == (
        __version__,
        PROJECT["license"],
        PROJECT["keywords"],
    )
    assert cited["abstract"] == PROJECT["description"] == site["site_description"]
    assert cited["repository-code"] == home == site["repo_url"]
    assert all(url.startswith(home) for url in PROJECT["urls"].values())


def test_the_hooks_are_what_make_lint_and_make_types_type() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (repo,) = config["repos"]
    assert repo["repo"] == "local", "nothing but the lock's own tools"
    assert {hook["language"] for hook in repo["hooks"]} == {"system"}
    makefile = (ROOT / "Makefile").read_text()
    for hook in repo["hooks"]:
        tool, *words = hook["entry"].removeprefix(".venv/bin/").split()
        words = [word for word in words if word != "--force-exclude"]
        typed = [line for line in makefile.splitlines() if line.startswith(f"\t$(BIN)/{tool} ")]
        assert any(set(words) <= set(line.split()) for line in typed), hook["id"]


def test_the_editor_and_the_container_know_what_the_project_wants() -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert f"max_line_length = {ruff['line-length']}" in (ROOT / ".editorconfig").read_text()
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["postCreateCommand"] == "make venv" and container["image"] == "debian:13"
    needed = set(re.search(r"PACKAGES=\(([^)]+)\)", (ROOT / ".ci/run").read_text())[1].split())  # type: ignore[index]
    installed = set(container["onCreateCommand"].rpartition("--no-install-recommends ")[2].split())
    # What only root's cluster needs isn't for a workstation
    assert needed - installed == {"iproute2", "mmdebstrap", "util-linux"}


class TestDocsSite:
    def built(self, config: Path, place: Path) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "properdocs", "build", "--strict", "-f", str(config)]
        return subprocess.run([*argv, "-d", str(place)], capture_output=True, text=True, check=False)

    def test_every_document_is_a_page_and_nothing_is_fetched_from_elsewhere(self, tmp_path: Path) -> None:
        said = self.built(ROOT / "properdocs.yml", tmp_path / "site")
        assert said.returncode == 0, said.stdout + said.stderr
        pages = {file.stem for file in (tmp_path / "site").glob("*.html")}
        assert {file.stem for file in (ROOT / "docs").glob("*.md")} <= pages
        assert {"index", "contributing", "changelog", "security"} <= pages
        for page in (tmp_path / "site").glob("*.html"):
            assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', page.read_text()), page.name
        for figure in (ROOT / "docs").glob("*.svg"):
            assert (tmp_path / "site" / figure.name).is_file()
        walk = (tmp_path / "site" / "walk.html").read_text()
        assert f'href="{PROJECT["urls"]["Homepage"]}/blob/main/kbslurm/flow/submit.py"' in walk

    @pytest.mark.parametrize("link", ["nowhere.md", "walk.md#nowhere", "../kbslurm/nowhere.py"])
    def test_a_link_that_leads_nowhere_ends_it(self, tmp_path: Path, link: str) -> None:
        copied = {"docs", ".ci", "properdocs.yml"}
        for name in {file.name for file in ROOT.iterdir()} - {".git", ".venv", "build"}:
            if name in copied and (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif name in copied:
                shutil.copy(ROOT / name, tmp_path / name)
            else:
                (tmp_path / name).symlink_to(ROOT / name)
        with (tmp_path / "docs" / "glossary.md").open("a") as glossary:
            glossary.write(f"\nSee [there]({link}).\n")
        said = self.built(tmp_path / "properdocs.yml", tmp_path / "site")
        warned = [line for line in (said.stdout + said.stderr).splitlines() if line.startswith("WARNING")]
        assert said.returncode != 0 and warned and all("nowhere" in line for line in warned), said.stderr

    def test_a_block_of_code_in_a_list_stays_one(self) -> None:
        text = "1. Do\n\n   ```sh\n   a\n     b\n   ```\n\n   then [it](../kbslurm/ports.py).\n"
        for_the_site = ours("docs_site").for_the_site
        wanted = "1. Do\n\n        a\n          b\n\n    then [it](R/kbslurm/ports.py).\n"
        assert for_the_site(text, "docs/walk.md", "R") == wanted

    def test_pictures_are_found_from_the_sites_pages(self, caplog: pytest.LogCaptureFixture) -> None:
        for_the_site = ours("docs_site").for_the_site
        for document, path in (
            ("README.md", "docs/pictures/board-dark.png"),
            ("docs/pages.md", "pictures/board-dark.png"),
        ):
            assert for_the_site(f'<img src="{path}">', document, "R") == '<img src="pictures/board-dark.png">'
        assert not caplog.records
        for_the_site('<img src="docs/pictures/nothing.png">', "README.md", "R")
        assert "README.md shows docs/pictures/nothing.png, which is not there" in caplog.text


class TestRelease:
    release = ours("release")

    @pytest.fixture
    def checkout(self, tmp_path: Path) -> Path:
        (tmp_path / "kbslurm").mkdir()
        (tmp_path / "kbslurm" / "__init__.py").write_text('__version__ = "1.2.0"\n')
        (tmp_path / "CHANGELOG.md").write_text(
            "# Changelog\n\n## 1.2.0 – unreleased\n\n* New.\n\n## 1.1.0 – 2026-01-02\n"
        )
        (tmp_path / "CITATION.cff").write_text("version: 1.2.0\nlicense: Apache-2.0\n")
        return tmp_path

    def test_what_it_writes_down_is_what_it_then_finds(self, checkout: Path) -> None:
        assert self.release.stated(checkout, released=False) == "1.2.0"
        self.release.write_down(checkout, "1.3.0", "2026-05-06")
        assert self.release.stated(checkout, released=True) == "1.3.0"
        assert "## 1.3.0 – 2026-05-06\n\n* New.\n\n## 1.1.0 – 2026-01-02" in (checkout / "CHANGELOG.md").read_text()
        assert "version: 1.3.0\ndate-released: 2026-05-06\n" in (checkout / "CITATION.cff").read_text()
        with pytest.raises(self.release.Wrong, match="nothing to release"):
            self.release.write_down(checkout, "1.4.0", "2026-05-07")

    @pytest.mark.parametrize(
        ("file", "text", "why"),
        [
            ("kbslurm/__init__.py", '__version__ = "1.2"\n', "isn't a version"),
            ("kbslurm/__init__.py", "", "doesn't contain its version"),
            ("CHANGELOG.md", "# Changelog\n\n## 1.1.0 – 2026-01-02\n\n* Old.\n", "doesn't begin with"),
            (
                "CHANGELOG.md",
                "# Changelog\n\n## 1.2.0 – 2026-01-02\n\n## 1.1.0 – 2025-01-02\n\n* Old.\n",
                "has no entries",
            ),
            ("CHANGELOG.md", "# Changelog\n\n## 1.2.0 – unreleased\n\n* New.\n", "doesn't say when"),
            ("CITATION.cff", "version: 1.1.0\n", "CITATION.cff has version 1.1.0"),
        ],
    )
    def test_what_disagrees_is_refused(self, checkout: Path, file: str, text: str, why: str) -> None:
        (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 – 2026-01-02\n\n* New.\n")
        (checkout / file).write_text(text)
        with pytest.raises(self.release.Wrong, match=why):
            self.release.stated(checkout, released=True)

    def test_this_checkouts_archives_are_in_order_and_nothing_changes(self, tmp_path: Path) -> None:
        assert self.release.stated(ROOT, released=False) == __version__
        wheel, sdist = self.release.build(ROOT, tmp_path)
        self.release.check_archives(wheel, sdist, __version__)
        with pytest.raises(self.release.Wrong, match="different version"):
            self.release.check_archives(wheel, sdist, "9.9.9")

    @needs(GIT)
    def test_a_version_that_is_none_ends_before_anything_is_touched(self) -> None:
        before = (ROOT / "kbslurm" / "__init__.py").read_bytes()
        argv = [sys.executable, str(ROOT / ".ci" / "release.py"), "next"]
        said = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert said.returncode == 2 and "next isn't a version" in said.stderr
        assert (ROOT / "kbslurm" / "__init__.py").read_bytes() == before


def test_no_test_is_a_judge_of_its_own_that_ends_what_else_it_has_started() -> None:
    """In `make test`, which runs all floors in one process, that was the database."""
    found = [file for file in (ROOT / "tests").rglob("*.py") if "LocalRunners(" in file.read_text()]
    known = {ROOT / "tests/flow/harness_ground.py", ROOT / "tests/bench/harness.py", Path(__file__)}
    assert set(found) == known


def test_every_test_asserts_something() -> None:
    """Itself, or by a function of the tests that does; a name that several functions have counts for all of them."""
    trees = {file: ast.parse(file.read_text()) for file in sorted((ROOT / "tests").rglob("*.py"))}
    functions = [
        (file, node)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    asserting = {node.name for _, node in functions if asserts(node, set())}
    while more := {node.name for _, node in functions if node.name not in asserting and asserts(node, asserting)}:
        asserting |= more
    silent = [
        f"{file.relative_to(ROOT)}::{node.name}"
        for file, node in functions
        if node.name.startswith("test_") and not asserts(node, asserting - {node.name}) and not asserts(node, set())
    ]
    assert not [name for name in silent if "/test_" in name]


def asserts(function: ast.AST, helpers: set[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in {"raises", "fail", "warns", "super"} | helpers:
                return True
            if any(word.arg == "check" and getattr(word.value, "value", None) is True for word in node.keywords):
                return True
    return False
