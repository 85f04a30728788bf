"""Print a check's findings: PASS, CAUTION or FAIL, each with its remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kbslurm.cli.output import printing
from kbslurm.domain.finding import Finding, Grade, worst
from kbslurm.errors import EXIT_BUG, EXIT_OK


def print_findings(findings: Sequence[Finding], as_json: bool, *, summed: bool = False) -> int:
    """Print the findings, then `summed` and the count per grade; the exit code says whether anything failed."""
    if as_json:
        printing.as_json({"worst": worst(findings).value, "findings": list(findings)})
    else:
        for finding in findings:
            printing.out().print(_line(finding), soft_wrap=True)
        if summed:
            counts = Counter(finding.grade for finding in findings)
            printing.say(", ".join(f"{counts[grade]} {grade.value}" for grade in Grade if counts[grade]))
    return EXIT_BUG if worst(findings) is Grade.FAIL else EXIT_OK


_COLOURS = {Grade.PASS: "green", Grade.CAUTION: "yellow", Grade.FAIL: "bold red", Grade.UNSEEN: "dim"}
_SHOWN = {Grade.UNSEEN: "–"}


def _line(finding: Finding) -> str:
    grade = f"[{_COLOURS[finding.grade]}]{_SHOWN.get(finding.grade, finding.grade.value):<7}[/]"
    place = f"[dim]{printing.escape(finding.where)}[/] " if finding.where else ""
    line = f"{grade} {place}[bold]{printing.escape(finding.name)}[/]: {printing.escape(finding.text)}"
    return line + (f"\n        → {printing.escape(finding.remedy)}" if finding.remedy else "")
