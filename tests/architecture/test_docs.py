"""The documents say what is there: links lead somewhere, commands exist, and every command is written about."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from kbslurm import wiring
from kbslurm.config import settings

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "containers").rglob("*.md")])
REQUIRED = ("walk", "glossary", "operate", "site-admin", "host-guide", "competitor-guide")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", REQUIRED)
def test_every_promised_document_is_there(name: str) -> None:
    assert len((ROOT / "docs" / f"{name}.md").read_text()) > 500


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for pair in LINK.findall(prose(document)):
        target = pair[0] or pair[1]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (document.parent / path).resolve() if path else document
        assert found.exists(), f"{document.name} links to {target}, which is not there"
        assert found.is_relative_to(ROOT), f"{document.name} links to {target}, outside of the project"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{document.name} links to {target}: no such heading"


def test_what_language_models_read_first_leads_somewhere() -> None:
    text = (ROOT / "llms.txt").read_text()
    assert text.startswith("# kbslurm\n\n> ")
    links = [pair[0] for pair in LINK.findall(text)]
    assert {"docs/agents.md", "docs/programs.md"} <= set(links)
    assert not [link for link in links if not (ROOT / link).is_file()]


def test_the_walk_names_its_eight_rooms_in_order_and_links_each() -> None:
    text = (ROOT / "docs" / "walk.md").read_text()
    links = [pair[0] for pair in LINK.findall(text)]
    rooms = [
        "kbslurm/flow/submit.py",
        "kbslurm/flow/queue.py",
        "kbslurm/flow/render.py",
        "kbslurm/flow/launch.py",
        "eval/kbslurm_eval/run.py",
        "kbslurm/flow/collect.py",
        "kbslurm/flow/score.py",
        "kbslurm/flow/announce.py",
    ]
    places = [next((n for n, link in enumerate(links) if room in link), -1) for room in rooms]
    assert -1 not in places, f"docs/walk.md does not link {rooms[places.index(-1)]}"
    assert places == sorted(places)


def test_the_readme_tells_what_why_and_the_walk() -> None:
    text = (ROOT / "README.md").read_text()
    for word in ("accepted", "queue", "rendered", "launched", "harness", "collected", "scored", "announced"):
        assert word in text, f"README.md does not mention {word}"
    for line in ("make demo", "make test", "docs/walk.md", "docs/glossary.md", "CONTRIBUTING.md", "LICENSE"):
        assert line in text


def test_every_command_is_written_about() -> None:
    documents = "\n".join(document.read_text() for document in DOCUMENTS)
    missing = [command for command in commands() if f"kbslurm {command}" not in documents]
    assert not missing, f"no document mentions: {', '.join(missing)}"


def test_no_document_names_a_command_that_is_not_there() -> None:
    there = set(commands())
    first_words = {command.split()[0] for command in there}
    for document in DOCUMENTS:
        for line in shell_lines(document):
            word = re.match(r"(?:\S+=\S+ )*(?:\S*/)?kbslurm ([a-z][a-z-]*)", line)
            if word:
                assert word.group(1) in first_words, f"{document.name}: there is no `kbslurm {word.group(1)}`"


TOML_BLOCK = re.compile(r"^( *)```toml\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
OVERFLOW = [textwrap.dedent(body) for _, body in TOML_BLOCK.findall((ROOT / "docs" / "overflow.md").read_text())]


@pytest.mark.parametrize("block", OVERFLOW, ids=lambda block: block.splitlines()[0])
def test_what_is_written_to_be_copied_is_a_configuration(tmp_path: Path, block: str) -> None:
    (tmp_path / "kbslurm.toml").write_text(block)
    told = settings.load(env={}, cwd=tmp_path)
    tables = tomllib.loads(block)
    clusters = tables.pop("ray", {})
    read = [
        (name, key, value, getattr(getattr(told, name), key))
        for name, table in tables.items()
        for key, value in table.items()
    ]
    read += [
        (f"ray.{name}", key, value, getattr(told.ray[name], key))
        for name, table in clusters.items()
        for key, value in table.items()
    ]
    assert read
    for name, key, value, holds in read:
        if isinstance(holds, str | int | float):
            assert holds == value, f"[{name}] {key}"
        else:
            assert holds, f"[{name}] {key}"


@pytest.mark.parametrize("place", ["github", "modal"])
def test_another_place_is_five_lines(tmp_path: Path, place: str) -> None:
    """And the secrets that the page names: no more than these makes it a place of this installation."""
    (block,) = [block for block in OVERFLOW if block.startswith(f"[{place}]")]
    assert len([line for line in block.splitlines() if line.strip()]) <= 5, block
    (tmp_path / "kbslurm.toml").write_text(block)
    names = ("GITHUB_TOKEN", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")
    env = dict.fromkeys(names, "secret") | {"KBSLURM_RUN_KEY": "ab" * 32}
    assert all(f"`{name}`" in (ROOT / "docs" / "overflow.md").read_text() for name in env)
    (found,) = wiring.places(settings.load(env=env, cwd=tmp_path))
    assert (found.name, found.role, found.untrusted) == (place, "overflow", True)
    assert found.backend.capacity()["H100"] > 0


def test_the_blocks_are_one_configuration_together(tmp_path: Path) -> None:
    """Whoever follows the page from its begin to its end puts one below the other."""
    tables: dict[str, dict[str, str]] = {}
    for line in "\n".join(OVERFLOW).splitlines():
        if line.startswith("["):
            table = tables.setdefault(line, {})
        elif line.strip():
            table[line.partition("=")[0].strip()] = line
    text = "\n".join(line for head, keys in tables.items() for line in (head, *keys.values()))
    (tmp_path / "kbslurm.toml").write_text(text)
    told = settings.load(env={}, cwd=tmp_path)
    assert told.github.gpus and told.modal.gpus and told.policy.places and told.policy.budget.month


def test_site_configs_match_the_schema() -> None:
    schema = json.loads((ROOT / "site-configs" / "schema.json").read_text())
    assert schema["type"] == "object"
    assert list((ROOT / "site-configs").glob("*.toml"))


def commands() -> list[str]:
    """Every command of the CLI by its whole name, hidden ones left out."""
    code = """
import json, typer.main, kbslurm.cli.app
def walk(group, prefix):
    for name, command in sorted(group.commands.items()):
        if not command.hidden:
            if hasattr(command, "commands"):
                yield from walk(command, prefix + [name])
            else:
                yield " ".join(prefix + [name])
print(json.dumps(list(walk(typer.main.get_command(kbslurm.cli.app.app), []))))
"""
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert isinstance(found, list) and found
    return [str(name) for name in found]


def prose(document: Path) -> str:
    """The text without its code, where brackets mean something else."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`(?!\])", "", text)


def shell_lines(document: Path) -> list[str]:
    blocks = re.findall(r"^```(?:sh|bash|console|shell)\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    return [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]


def anchors(document: Path) -> set[str]:
    """The anchors that a Markdown renderer gives to a document's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", document.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pictures_come_for_both_themes_and_are_small_and_still() -> None:
    """By `make screenshots`."""
    shown = set()
    for document in (ROOT / "README.md", ROOT / "docs/pages.md"):
        told = re.findall(r'(?:src|srcset)="([^":]+)"', document.read_text())
        assert told
        shown |= {(document.parent / path).resolve() for path in told}
    there = set((ROOT / "docs/pictures").iterdir())
    assert shown == there
    assert {file.name.replace("dark", "light") for file in there} == {f.name for f in there if "light" in f.name}
    for file in there:
        assert file.stat().st_size < 150_000, file
        if file.suffix == ".svg":
            text = file.read_text().replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"<script|https?:|@import|@font-face|<animate", text), file
