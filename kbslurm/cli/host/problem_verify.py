"""`kbslurm problem verify`: check a problem against its own example submissions."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json, Root, checked_mode
from kbslurm.cli.output import printing
from kbslurm.cli.output.printing import caution
from kbslurm.domain import physics
from kbslurm.errors import EXIT_OK, EXIT_REJECTED, Invalid

Place = Annotated[Path, typer.Argument(help="The problem's directory (with task.yml), or a single reference file.")]


def problem_verify(
    directory: Place,
    mode: Annotated[str | None, typer.Option(help="The mode (default: the problem's most thorough one).")] = None,
    mutate: Annotated[bool, typer.Option(help="Also test the problem's check with corrupted answers.")] = True,
    peak_tflops: Annotated[
        float | None, typer.Option(help="What this machine can compute, in 10^12 operations a second.", min=0)
    ] = None,
    peak_tbytes: Annotated[
        float | None, typer.Option(help="What this machine can move, in 10^12 bytes a second.", min=0)
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> int:
    """Judge submissions/{accepted,wrong_answer,crash,timeout,memory,cheat}/* and check their verdicts.

    Then the problem's check is tested with the reference's answers, corrupted in known ways. Exit code 0: every verdict
    matches its folder, and the check rejects zeros and constants. 3: a verdict differs, or the check accepts them.

    With --peak-tflops or --peak-tbytes the problem's flops and bytes are checked too: no accepted submission, and no
    baseline, may be faster than they allow. 3: one is, so they count work that can be avoided.
    """
    from kbslurm.config import shared_folders
    from kbslurm.problems import loading
    from kbslurm.trial import mutations, verifying

    rows: list[dict[str, Any]] = []
    problem = loading.load(directory, root=root)
    seen = mutations.Mutations()
    peak = None
    if peak_tflops is not None or peak_tbytes is not None:
        if not any(name in problem.config for name in physics.FORMULAS):
            raise Invalid(
                f"{problem.name} has neither flops nor bytes, so there is no limit to check",
                hint="Declare them under kbslurm: in its task.yml, or leave out --peak-tflops and --peak-tbytes.",
            )
        peak = physics.Peak(
            flops_per_s=peak_tflops * 1e12 if peak_tflops else None,
            bytes_per_s=peak_tbytes * 1e12 if peak_tbytes else None,
        )
    with TemporaryDirectory(prefix="kbslurm-verify-") as work, printing.progress(as_json) as tell:
        for found in verifying.verify(
            directory,
            problem=problem,
            work=Path(work),
            eval_dir=shared_folders.eval_dir(),
            mode=checked_mode(mode) if mode else None,
            peak=peak,
            on_start=lambda file: tell({"phase": f"judging {file.parent.name}/{file.name}"}),
        ):
            rows.append(
                {
                    "file": f"{found.file.parent.name}/{found.file.name}",
                    "expected": found.expected,
                    "got": found.got,
                    "reason": found.reason,
                    "score_s": found.score_s,
                    "beyond": list(found.beyond),
                    "ok": found.ok,
                }
            )
            if not as_json:
                _told(rows[-1])
        if mutate:
            tell({"phase": "corrupting answers"})
            seen = mutations.try_mutations(problem, work=Path(work), eval_dir=shared_folders.eval_dir())
    bad = [row for row in rows if not row["ok"]]
    findings = [one for one in seen.findings if one["severity"] != "none"]
    errors = [one for one in findings if one["severity"] == "error"]
    if as_json:
        printing.as_json(
            {"ok": not bad and not errors, "submissions": rows, "mutations": seen.findings, "trouble": seen.trouble}
        )
    else:
        for one in findings:
            colour = "red" if one["severity"] == "error" else "yellow"
            printing.out().print(f"[{colour}]{one['severity']}[/] {printing.escape(one['message'])}", soft_wrap=True)
        if seen.trouble:
            caution(f"the check couldn't be tested with corrupted answers: {seen.trouble}")
        said = f"; {len(findings)} of {len(seen.findings)} corruptions pass the check" if seen.findings else ""
        printing.say(f"{len(rows) - len(bad)} as expected, {len(bad)} not{said}")
    return EXIT_REJECTED if bad or errors else EXIT_OK


def _told(row: dict[str, Any]) -> None:
    mark = "[green]ok[/] " if row["ok"] else "[red]NO[/] "
    got = printing.coloured(row["got"]) if row["ok"] else f"{printing.coloured(row['got'])}, expected {row['expected']}"
    if row["beyond"]:
        got = f"{printing.coloured(row['got'])}, faster than its work allows"
    detail = printing.seconds(row["score_s"]) if row["score_s"] is not None else row["reason"]
    printing.out().print(f"{mark}{printing.escape(row['file'])}  {got}  {printing.escape(detail)}", soft_wrap=True)
    for sentence in row["beyond"]:
        printing.out().print(f"     [red]{printing.escape(sentence)}[/]", soft_wrap=True)
