"""Recipes: the definition files that images are built from, read and checked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbslurm.errors import Misconfigured

PINNED_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})$")
_PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_SECTION = re.compile(r"%([a-z]+)\b")
SECTIONS = frozenset("setup files post test environment startscript runscript labels help arguments appinstall".split())


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A definition file, read. `header` has lower-case keys; `sections` the text below each %name."""

    file: Path
    header: Mapping[str, str]
    sections: Mapping[str, str]
    arguments: Mapping[str, str]
    digest: str

    @property
    def name(self) -> str:
        """Its name for `kbslurm image build`."""
        return self.file.stem

    @property
    def base(self) -> str:
        """Its base, with arguments filled in: `docker://debian:…@sha256:…`."""
        source = self.filled(self.header.get("from", ""))
        return f"{self.filled(self.header['bootstrap'])}://{source}"

    @property
    def pinned(self) -> str | None:
        """The digest that pins its base."""
        found = PINNED_DIGEST.search(self.base)
        return found[1] if found else None

    def filled(self, text: str, given: Mapping[str, str] | None = None) -> str:
        """The text with its {{ arguments }} filled in, from the given values or the defaults."""
        known = {**self.arguments, **(given or {})}
        return _PLACE.sub(lambda found: known.get(found[1], found[0]), text)


def read_recipe(file: Path) -> Recipe:
    """The recipe in this file, or Misconfigured with the line."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"can't be read: {error}", file=file, fix="Give a definition file.") from None
    header: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    section: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if found := _SECTION.match(line):
            section = found[1]
            if section not in SECTIONS:
                raise Misconfigured(
                    f"%{section} isn't a valid section",
                    file=file,
                    line=number,
                    fix=f"Known: {', '.join(sorted(SECTIONS))}.",
                )
            sections.setdefault(section, [])
        elif section is not None:
            sections[section].append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            key, colon, value = line.partition(":")
            if not colon:
                raise Misconfigured(
                    "is neither `Key: value` nor a %section", file=file, line=number, fix="Fix this line."
                )
            header[key.strip().lower()] = value.strip()
    if "bootstrap" not in header:
        raise Misconfigured("doesn't name its base", file=file, line=1, fix="Add Bootstrap: and From:.")
    recipe = Recipe(
        file=file,
        header=header,
        sections={name: "\n".join(lines) for name, lines in sections.items()},
        arguments=dict(_arguments(sections.get("arguments", ()))),
        digest=f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
    )
    _check_places(recipe, text)
    return recipe


def _arguments(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            yield name.strip(), value.strip().strip("\"'")


def _check_places(recipe: Recipe, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        for found in _PLACE.finditer(line):
            if found[1] not in recipe.arguments:
                raise Misconfigured(
                    f"{{{{ {found[1]} }}}} has no default", file=recipe.file, line=number, fix="Add it to %arguments."
                )


def recipes_in(folder: Path) -> list[Recipe]:
    """Every recipe in a folder, by name."""
    return [read_recipe(file) for file in sorted(folder.glob("*.def"))]
