"""`kbslurm triage`: a scanner's flags on submissions, for staff to review."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json, submission_number
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid
from kbslurm.kernelguard import scanner as rules


def triage(
    what: Annotated[list[str], typer.Argument(metavar="FILE|SUBMISSION...", help="Files or submission numbers.")],
    as_json: Json = False,
) -> int:
    """Scan submissions with kernelguard: flags with evidence, never a verdict."""
    found = {name: rules.opinion_of(text) for name, text in _texts(what).items()}
    if as_json:
        printing.as_json([{"what": name, **asdict(opinion)} for name, opinion in found.items()])
        return EXIT_OK
    for name, opinion in found.items():
        printing.say(f"{name}: {opinion.opinion}, {len(opinion.flags)} flags")
        rows = [(flag.rule, flag.severity, printing.escape(flag.evidence)) for flag in opinion.flags]
        if rows:
            printing.table(("rule", "severity", "evidence"), rows, wrap=2)
    return EXIT_OK


def _texts(what: list[str]) -> dict[str, str]:
    numbers = [name for name in what if name.isdecimal() and not Path(name).exists()]
    texts = {}
    for name in what:
        if name not in numbers:
            try:
                texts[name] = Path(name).read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                raise Invalid(f"{name} can't be read: {error.strerror}") from None
    if numbers:
        with host() as hosts:
            for name in numbers:
                texts[f"submission {name}"] = hosts.source(submission_number(name))
    return texts
