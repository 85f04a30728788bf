"""`kbslurm similar BOARD`: pairs of people whose sources are similar, to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain.similarity import USUAL
from kbslurm.errors import EXIT_OK, Invalid

T = TypeVar("T")


def similar(
    name: BoardName,
    section: Annotated[
        str | None, typer.Option("--section", help="Only pairs in which somebody of this section is.")
    ] = None,
    others: Annotated[
        list[str] | None,
        typer.Option("--with", help="Another board to compare with, like last year's. Can be repeated."),
    ] = None,
    at_least: Annotated[
        float, typer.Option("--at-least", help="Show pairs that have so many per cent of the smaller source in common.")
    ] = 100 * USUAL,
    form: Annotated[str, typer.Option("--format", "-f", help="table or html: each pair side by side.")] = "table",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write the pages to, with --format html.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Find pairs of people with similar sources: flags to look at, never verdicts."""
    if form not in ("table", "html"):
        raise Invalid(f"{form!r} isn't a format of pairs", hint="Choose one of: table, html.")
    if (form == "html") != (out is not None):
        raise Invalid("--format html and --out DIR go together", hint="Give both, or neither.")
    with host() as hosts, printing.progress(as_json) as tell:

        def watch(rows: Iterable[T], phase: str, /) -> Iterable[T]:
            return printing.counting(rows, tell, lambda row: phase)

        found = hosts.similar(name, section=section, others=others or (), at_least=at_least, watch=watch)
        if out is not None:
            _write(out, found, [hosts.similar_pair(*_numbers(row)) for row in watch(found["pairs"], "reading pairs")])
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    for line in _left_out(found):
        printing.caution(line)
    if out is not None:
        printing.say(f"{len(found['pairs'])} pairs written to {printing.path(out / 'index.html')}")
    else:
        _table(found)
    printing.say(found["note"])
    return EXIT_OK


def _numbers(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["left"]["submission"], row["right"]["submission"]


def _write(out: Path, found: Mapping[str, Any], pairs: list[Mapping[str, Any]]) -> None:
    from kbslurm.cli.output import similar_pages

    try:
        out.mkdir(parents=True, exist_ok=True)
        for pair in pairs:
            (out / similar_pages.file_of(pair)).write_text(similar_pages.of_pair(pair), encoding="utf-8")
        (out / "index.html").write_text(similar_pages.index(found), encoding="utf-8")
    except OSError as error:
        raise Invalid(f"can't write the pages ({error.strerror})", file=out) from None


def _left_out(found: Mapping[str, Any]) -> list[str]:
    lines = []
    if found["left_out"]:
        lines.append(f"{found['left_out']} older sources of people who have many newer ones weren't compared")
    if found["cut"]:
        numbers = ", ".join(f"#{number}" for number in found["cut"][:20])
        lines.append(f"only the beginning of these was compared, they are very long: {numbers}")
    return lines


def _table(found: Mapping[str, Any]) -> None:
    many = f"{found['sources']} sources of {found['people']} people"
    if not found["pairs"]:
        printing.say(f"{many} were compared: no two people's are {found['at_least']:g} % similar.")
        return
    elsewhere = bool(found["others"])
    rows = [
        (
            f"{row['similarity']:.0f} %",
            *(_who(row[side], elsewhere=elsewhere) for side in ("left", "right")),
            f"#{row['left']['submission']} #{row['right']['submission']}",
            str(row["pairs"]),
        )
        for row in found["pairs"]
    ]
    title = f"{found['leaderboard']}: similar sources, {many}"
    printing.table(("similar", "who", "and who", "submissions", "pairs"), rows, title=title)


def _who(side: Mapping[str, Any], *, elsewhere: bool) -> str:
    more = [f"section {side['section']}"] if side["section"] else []
    more += [side["leaderboard"]] if elsewhere else []
    return printing.escape(side["name"] + (f" ({', '.join(more)})" if more else ""))
