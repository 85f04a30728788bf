"""`kbslurm shadow`: the same submission at two places, and how their times differ."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.context import configuration, opened_store, own_name
from kbslurm.cli.lookup import board_named
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, NotFound


def order(
    submission: Annotated[int, typer.Argument(help="A leaderboard submission with a score.")],
    on: Annotated[str, typer.Option("--on", help="The place, as named by kbslurm status.")],
    as_json: Json = False,
) -> int:
    """Measure a submission again at another place, regardless of the overflow rule. It never ranks, and it may cost
    money."""
    from kbslurm import wiring

    places = {place.name: place for place in wiring.places(configuration())}
    if on not in places:
        raise NotFound("place", on, known=list(places))
    gpus = list(places[on].backend.capacity())
    with opened_store() as store:
        runs = store.shadows.order(submission, on, gpus, by=own_name(), now=datetime.now(UTC))
    if as_json:
        printing.as_json({"submission": submission, "place": on, "runs": runs})
        return EXIT_OK
    named = ", ".join(map(str, runs))
    printing.say(f"ordered at {on}: run {named}; kbslurm shadow report BOARD shows the result")
    return EXIT_OK


def report(name: BoardName, as_json: Json = False) -> int:
    """Compare the board's times at other places with those at home, based on shadow runs."""
    with opened_store() as store:
        board = board_named(store, name)
        found = store.shadows.of_board(board.name)
    if as_json:
        printing.as_json(
            {
                "leaderboard": board.name,
                "places": [
                    {**printing.jsonable(row), "is_drift": None if row.drift is None else row.drift.is_drift}
                    for row in found
                ],
            }
        )
        return EXIT_OK
    if not found:
        printing.say(
            f"no submission to {board.name} was measured elsewhere yet;"
            " order one: kbslurm shadow order NUMBER --on PLACE"
        )
        return EXIT_OK
    rows = []
    for row in found:
        said = row.drift
        ratio = "–" if said is None else f"{said.ratio:.4f} ({said.low:.4f} to {said.high:.4f})"
        even = "within measurement error"
        word = "" if said is None else "slower" if said.low > 1 else "faster" if said.high < 1 else even
        pairs = "0" if said is None else str(said.pairs)
        rows.append(
            (
                printing.escape(row.place),
                printing.escape(row.gpu),
                pairs,
                ratio,
                word,
                str(row.open),
                str(row.without_score),
            )
        )
    heads = ("place", "GPU", "pairs", "time there / time at home", "", "open", "without a score")
    printing.table(heads, rows, title=f"{board.name}: drift")
    return EXIT_OK
