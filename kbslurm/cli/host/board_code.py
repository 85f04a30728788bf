"""`kbslurm board code`: whether a board publishes its people's code, and under which licence."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain.access import CODE_RULES
from kbslurm.errors import Invalid


def board_code(
    name: BoardName,
    rule: Annotated[
        str | None,
        typer.Argument(
            metavar="[RULE]",
            help="never; deadline: everybody's, once the board is over; consent: then of those who agree. Leave it out"
            " to see what holds.",
        ),
    ] = None,
    licence: Annotated[
        str | None, typer.Option("--licence", help="What others may do with the code: a name like MIT, or a text.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Say when a board's code is published: never, after the deadline, or by each author's consent."""
    wanted = next((known for known in CODE_RULES if known == (rule or "").strip().lower()), None)
    if rule is not None and wanted is None:
        raise Invalid(f"{rule!r} isn't a rule for publishing code", hint=f"Choose one of: {', '.join(CODE_RULES)}.")
    if wanted is None and licence is not None:
        raise Invalid("a licence comes with a rule", hint="Write kbslurm board code BOARD consent --licence MIT.")
    with host() as hosts:
        told = hosts.code_rule(name) if wanted is None else hosts.set_code_rule(name, wanted, licence)
    if as_json:
        printing.as_json({key: value for key, value in told.items() if key != "consents"})
        return 0
    return printing.answer(False, f"{told['leaderboard']}: {told['in_words']}")
