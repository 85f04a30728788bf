"""`kbslurm shadow`: the same submission at two places, and how far the second one's times are from the first one's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from kbslurm.cli import show
from kbslurm.cli.board import Name, board_of
from kbslurm.cli.frame import Json, app, asking, configuration, opened_store
from kbslurm.errors import EXIT_OK, NotFound

group = typer.Typer(help="Measure submissions at another place, too: order, report.", no_args_is_help=True)
app.add_typer(group, name="shadow")


@group.command()
def order(
    submission: Annotated[int, typer.Argument(help="A leaderboard submission that has its score.")],
    on: Annotated[str, typer.Option("--on", help="The place, as kbslurm status calls it.")],
    as_json: Json = False,
) -> int:
    """Measure a submission once more at a place, whatever the rule for overflow. It never ranks; it may cost money."""
    from kbslurm import wiring

    places = {place.name: place for place in wiring.places(configuration())}
    if on not in places:
        raise NotFound("place", on, known=list(places))
    gpus = list(places[on].backend.capacity())
    with opened_store() as store:
        runs = store.order_shadow(submission, on, gpus, by=asking(), now=datetime.now(UTC))
    if as_json:
        show.as_json({"submission": submission, "place": on, "runs": runs})
        return EXIT_OK
    named = ", ".join(map(str, runs))
    show.say(f"ordered at {on}: run {named}; kbslurm shadow report BOARD tells what came of it")
    return EXIT_OK


@group.command()
def report(name: Name, as_json: Json = False) -> int:
    """How much longer the board's problem takes at other places, by what shadows of its submissions took there."""
    with opened_store() as store:
        board = board_of(store, name)
        found = store.shadows(board.name)
    if as_json:
        show.as_json(
            {
                "leaderboard": board.name,
                "places": [
                    {**show.plain(row), "is_drift": None if row.drift is None else row.drift.is_drift} for row in found
                ],
            }
        )
        return EXIT_OK
    if not found:
        show.say(f"no submission of {board.name} was measured elsewhere; kbslurm shadow order NUMBER --on PLACE")
        return EXIT_OK
    rows = []
    for row in found:
        said = row.drift
        ratio = "–" if said is None else f"{said.ratio:.4f} ({said.low:.4f} to {said.high:.4f})"
        word = "" if said is None else "slower" if said.low > 1 else "faster" if said.high < 1 else "no difference seen"
        pairs = "0" if said is None else str(said.pairs)
        rows.append(
            (show.escape(row.place), show.escape(row.gpu), pairs, ratio, word, str(row.open), str(row.without_score))
        )
    heads = ("place", "GPU", "pairs", "times there, of those at home", "", "open", "without a score")
    show.table(heads, rows, title=f"{board.name}: drift")
    return EXIT_OK
