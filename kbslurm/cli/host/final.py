"""`kbslurm final`: the leaders of a board head to head on one node in one job; it counts once a host applies it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid


def final(
    name: BoardName,
    top: Annotated[int | None, typer.Option("--top", min=2, help="How many take part (default: 5).")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", "-g", help="The GPU type, if the board has several.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Make its scores count for those who took part.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Discard it, killing its job if it is running.")] = False,
    as_json: Json = False,
) -> int:
    """Measure a board's leaders against each other in one job, or show how that went. Nothing counts until --apply."""
    if apply and forget:
        raise Invalid("--apply and --forget exclude each other", hint="Pass one of them.")
    if top is not None and (apply or forget):
        raise Invalid("a final is applied or discarded as a whole", hint="Leave --top out.")
    with host() as hosts:
        if apply:
            return _told(hosts.final_apply(name, gpu), as_json)
        if forget:
            return _told(hosts.final_forget(name, gpu), as_json)
        return _told(hosts.final(name, gpu, top), as_json)


def _told(found: Mapping[str, Any], as_json: bool) -> int:
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    rows = [
        (
            str(rival["place"]),
            printing.escape(rival["person"]),
            f"#{rival['submission']}",
            printing.score(rival["before_s"]),
            _now(found, rival),
        )
        for rival in found["rivals"]
    ]
    title = f"{found['board']} · {found['gpu']}: final, {found['state']}"
    printing.table(("place", "person", "submission", "before", "in the final"), rows, title=title)
    for gap in found["gaps"]:
        separation = "a clear difference" if gap["separated"] else "within measurement error"
        low, high = gap["interval"]
        printing.say(
            f"{gap['behind']} takes {gap['ratio']:.4f} times as long as {gap['ahead']}"
            f" ({low:.4f} to {high:.4f}): {separation}"
        )
    for rival in found["rivals"]:
        if rival["verdict"] not in (None, "passed", "infrastructure"):
            counts = "counts" if found["state"] == "applied" else "counts once this is applied"
            printing.say(f"{printing.escape(rival['person'])} failed: the slow end of the earlier interval {counts}")
    if found["state"] == "open":
        if number := found.get("unjudged"):
            printing.caution(_unjudged(number))
        printing.say(_next(found))
    return EXIT_OK


def _now(found: Mapping[str, Any], rival: Mapping[str, Any]) -> str:
    if rival["verdict"] is None:
        return str(found["run_state"])
    if rival["score_s"] is None:
        return printing.coloured(rival["verdict"])
    return printing.score(rival["score_s"], *rival["interval_s"], ranked=True)


def _unjudged(number: int) -> str:
    which = f"{number} ranked runs" if number > 1 else "a ranked run"
    still = "are" if number > 1 else "is"
    return f"{which} accepted before this final {still} still open and won't be bound by it; better wait, then order it"


def _next(found: Mapping[str, Any]) -> str:
    again = f"kbslurm final {found['board']} --gpu {found['gpu']}"
    if found["measured"]:
        return f"{again} --apply makes it count, --forget discards it"
    if found["over"]:
        return f"it wasn't measured ({found['reason'] or found['run_state']}); use --forget, then order another"
    return f"it is {found['run_state']}; {again} shows its state"
