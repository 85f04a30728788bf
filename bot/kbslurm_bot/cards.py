"""A submission's card on Discord: kbslurm's view of it → Components V2 as JSON. Pure.

The whole channel sees a card: it shows state and result. Test messages, logs and sources belong to the owner, and only
calls in the owner's name get them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from kbslurm.domain import access, contest, failed_tests, placement
from kbslurm.domain.amounts import score, seconds, speed_up
from kbslurm_bot.plot import Point, best

Row = Mapping[str, Any]
Act = Literal["cancel", "log", "again", "compare"]

IS_COMPONENTS_V2 = 1 << 15
CONTAINER, ACTION_ROW, BUTTON, TEXT, GALLERY = 17, 1, 2, 10, 12
GREY, BLURPLE, GREEN, RED, ORANGE = 0x80848E, 0x5865F2, 0x23A55A, 0xF23F43, 0xF0B232
SECONDARY, DANGER = 2, 4
TEXT_CAP = 4000
PICTURES = 4
BAR = 8
WENT_CAP = 200
WAITS_CAP = 400
# Our modes as Discord shows them.
MODES = {"test": "test", "benchmark": "benchmark", "profile": "profile", "leaderboard": "ranked"}
VERDICTS = {
    "passed": "passed",
    "wrong": "wrong answer",
    "error": "error",
    "timeout": "timed out",
    "memory": "out of memory",
    "violation": "against the rules",
    "infrastructure": "no result: the infrastructure failed, not the submission",
}
LABELS: dict[Act, str] = {"cancel": "Cancel", "log": "Log", "again": "Again", "compare": "Compare"}
PRESSED = re.compile(r"kb:(?P<act>cancel|log|again|compare):(?P<submission>[0-9]{1,18})")


@dataclass(frozen=True, kw_only=True)
class ScoreContext:
    """A score's standing on its board: against the owner's previous best, and against the next ahead."""

    rank: int | None = None
    of: int | None = None
    best_before_s: float | None = None
    next_s: float | None = None
    # The owner's own scores there, oldest first, ending with this one.
    history: tuple[Point, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A file that a card shows: its name, its alt text, and its contents."""

    name: str
    says: str
    data: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Everything that a card is made of. `full` is the API's answer to the owner; `contexts` are by GPU type."""

    full: Row
    owner: int
    contexts: Mapping[str, ScoreContext] = field(default_factory=dict)
    pictures: Sequence[Picture] = ()


def pressed(act: Act, submission: int) -> str:
    """A button's custom ID: it says everything, so that the button works without any stored state."""
    return f"kb:{act}:{submission}"


def escaped(text: str) -> str:
    """User-supplied text, made safe for Discord: no markup, no mention, one line."""
    text = " ".join(text.split())
    return re.sub(r"([\\*_~|`>#\[\]()<@:-])", r"\\\1", text)


def when(at: datetime | int, style: Literal["f", "R", "t"]) -> str:
    """A time that Discord shows to each reader in their own zone: in full, relative to now, or only the time of day."""
    return f"<t:{at if isinstance(at, int) else int(at.timestamp())}:{style}>"


def deadline(at: datetime, zone: str) -> str:
    """When a board closes: for the reader, and as it was announced."""
    return f"{when(at, 'f')} ({when(at, 'R')}; {contest.at_home(at, zone)})"


def message(shown: Shown) -> dict[str, Any]:
    """The complete message, ready to send; it pings nobody."""
    sent = {"flags": IS_COMPONENTS_V2, "allowed_mentions": {"parse": []}, "components": [card(shown)]}
    if not shown.pictures:
        return sent
    named = [{"id": n, "filename": one.name, "description": one.says} for n, one in enumerate(shown.pictures)]
    return {**sent, "attachments": named}


def verification(told: Row) -> dict[str, Any]:
    """A canary's state, by place and GPU type."""
    head = f"### #{told['submission_id']} canary on {escaped(told['leaderboard'])} · {MODES[told['mode']]}"
    runs = told["runs"]
    passed = sum(row["verdict"] == "passed" for row in runs)
    ended = sum(row["state"] in ("scored", "failed", "cancelled") for row in runs)
    colour = BLURPLE if ended < len(runs) else GREEN if passed == len(runs) else RED
    if passed < ended:
        colour = RED
    foot = f"-# {passed} of {len(runs)} passed" if told["done"] else f"-# {ended} of {len(runs)} finished"
    wrong = [f"⚠ {escaped(row['gpu'])}: {escaped(row['problem'])}" for row in runs if row.get("problem")]
    if wrong:
        colour = RED
    return note("\n".join([head, *(_verified(row) for row in runs), *wrong, foot]), colour)


def _verified(row: Row) -> str:
    gpu = f"**{escaped(row['gpu'])}**"
    where = f"{gpu} at {escaped(row['backend'])}" if row["backend"] else gpu
    tries = f" (attempt {row['attempts']})" if row["attempts"] > 1 else ""
    match row["state"]:
        case "scored" if row["verdict"] == "passed":
            return f"{where} ✓ works{tries} · {seconds(row['took_s'])} from queue to verdict"
        case "scored" | "failed":
            name = row["verdict"] or "infrastructure"
            return f"{where} ✗ {VERDICTS.get(name, name)}{tries}"
        case "queued":
            if row["place"]:
                return f"{gpu} at {escaped(row['place'])} waiting"
            return f"{gpu} waiting" + (f", was at {escaped(row['backend'])}" if row["backend"] else "")
        case other:
            return f"{where} {escaped(other)}{tries}"


def taken_back(submission: int, owner: int | None) -> dict[str, Any]:
    """The card of a deleted submission; a canary's has no owner."""
    whose = "canary" if owner is None else f"<@{owner}>"
    return note(f"### #{submission}\n-# {whose} · deleted", GREY)


def note(text: str, accent: int) -> dict[str, Any]:
    """A message with a single text."""
    container = {"type": CONTAINER, "accent_color": accent, "components": [{"type": TEXT, "content": text[:TEXT_CAP]}]}
    return {"flags": IS_COMPONENTS_V2, "allowed_mentions": {"parse": []}, "components": [container]}


def digest(sent: Mapping[str, Any]) -> str:
    """A digest that differs between messages."""
    return hashlib.sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()[:32]


def card(shown: Shown) -> dict[str, Any]:
    """One container: a header, a line per GPU type, and the buttons."""
    told = shown.full["submission"]
    head, *rest = lines(shown)
    items = [{"media": {"url": f"attachment://{one.name}"}, "description": one.says} for one in shown.pictures]
    return {
        "type": CONTAINER,
        "accent_color": colour(told["runs"]),
        "components": [
            {"type": TEXT, "content": head[:1000]},
            {"type": TEXT, "content": "\n".join(rest)[: TEXT_CAP - 1000]},
            *([{"type": GALLERY, "items": items}] if items else []),
            {"type": ACTION_ROW, "components": [button(act, told["id"]) for act in acts(told["done"])]},
        ],
    }


def lines(shown: Shown) -> list[str]:
    """The header, then a line or two per GPU type."""
    told = shown.full["submission"]
    head = f"### #{told['id']} {escaped(told['board'])} · {MODES[told['mode']]}"
    return [
        f"{head}\n-# <@{shown.owner}> · {escaped(told['file_name'])}",
        *(run_line(shown, row) for row in told["runs"]),
    ]


def acts(done: bool) -> tuple[Act, ...]:
    """The actions that its owner has now."""
    return ("log", "again", "compare") if done else ("cancel", "log")


def button(act: Act, submission: int) -> dict[str, Any]:
    """A button that is recognised by its ID alone."""
    style = DANGER if act == "cancel" else SECONDARY
    return {"type": BUTTON, "style": style, "label": LABELS[act], "custom_id": pressed(act, submission)}


def colour(runs: Sequence[Row]) -> int:
    """The colour of the worst outcome, once known."""
    names = {row["verdict"]["name"] for row in runs if row["verdict"]}
    if names - {"passed", "infrastructure"}:
        return RED
    if "infrastructure" in names:
        return ORANGE
    if any(row["state"] in ("queued", "launching", "running") for row in runs):
        return BLURPLE
    return GREY if any(row["state"] == "cancelled" for row in runs) else GREEN


def run_line(shown: Shown, row: Row) -> str:
    """One GPU type's state."""
    gpu = f"**{escaped(row['gpu'])}**"
    match row["state"]:
        case "queued":
            return f"{gpu} waiting{_place(shown, row)}"
        case "launching":
            return f"{gpu} starting{_went(row)}{_waits(row)}"
        case "running":
            return f"{gpu} {_progress(row['progress'])}{_went(row)}"
        case "cancelled":
            return f"{gpu} cancelled"
        case _:
            return _ended(shown, row, gpu) + _went(row)


def _went(row: Row) -> str:
    """Where it went and why, unless that is simply home. Older servers don't say."""
    last = row["attempts"][-1] if row["attempts"] else {}
    said = placement.went(str(last.get("backend", "")), str(last.get("why", "")))
    return f"\n-# {escaped(said[:WENT_CAP])}" if said else ""


def _waits(row: Row) -> str:
    """Why its job hasn't started, and what happens next. Older servers don't say."""
    said = str(row.get("waits_for") or "")
    return f"\n-# {escaped(said[:WAITS_CAP])}" if said else ""


def _ended(shown: Shown, row: Row, gpu: str) -> str:
    found = row["verdict"]
    name = found["name"] if found else "infrastructure"
    if name != "passed":
        return f"{gpu} ✗ {VERDICTS.get(name, name)}"
    if found["score_s"] is None:
        return f"{gpu} ✓ passed"
    if is_kept_back(shown.full):
        return f"{gpu} ✓ passed · {_why_kept_back(shown.full)}, so the time isn't shown here"
    line = f"{gpu} ✓ **{score(found['score_s'], found['low_s'], found['high_s'], ranked=bool(found['ranked']))}**"
    if shown.full["submission"]["mode"] == "leaderboard" and not found["ranked"]:
        why = found.get("not_ranked") or found["reason"]
        return f"{line} · not ranked" + (f"\n-# {escaped(why[:WENT_CAP])}" if why else "")
    return line + _context_text(found["score_s"], shown.contexts.get(row["gpu"]))


def is_kept_back(full: Row) -> bool:
    """Whether others mustn't read how fast it is. Older servers don't say."""
    return bool(full["submission"].get("frozen"))


def _why_kept_back(full: Row) -> str:
    match full["submission"].get("kept_back"):
        case "hidden":
            return "the standings of this board aren't shown to everybody"
        case "names":
            return "people are shown under other names on this board"
        case _:
            return "the standings are frozen"


def _context_text(score_s: float, stands: ScoreContext | None) -> str:
    if stands is None:
        return ""
    parts = []
    if stands.best_before_s is not None:
        mark = "★ " if score_s < stands.best_before_s else ""
        own = f"own best {seconds(stands.best_before_s)}"
        parts.append(mark + speed_up(score_s, stands.best_before_s, own))
    if stands.rank is not None:
        parts.append(f"rank {stands.rank}" + (f" of {stands.of}" if stands.of else ""))
    if stands.next_s is not None:
        parts.append(speed_up(score_s, stands.next_s, f"the next, {seconds(stands.next_s)}"))
    return "".join(f"\n-# {part}" for part in ([" · ".join(parts)] if parts else []))


def history_told(board: str, gpu: str, history: Sequence[Point]) -> str:
    """A history's alt text."""
    return f"{len(history)} own scores on {board}, {gpu}; the best {seconds(best(history).score_s)}"[:1000]


def _place(shown: Shown, row: Row) -> str:
    queue = shown.full["runner_queue"]
    if not queue or queue["gpu"] != row["gpu"] or not queue.get("place"):
        return ""
    why = "".join(f" · {escaped(queue[key])}" for key in ("error", "waits_for") if queue.get(key))
    return f", place {queue['place']}{_starts(queue.get('starts_in_s'))}{why}"


def _starts(range_s: Sequence[float] | None) -> str:
    if range_s is None:
        return ""
    low, high = (max(0, round(one / 60)) for one in range_s)
    if high <= 1:
        return ", starts within a minute"
    return f", starts in about {low} to {high} min" if low else f", starts within {high} min"


def _progress(told: Row | None) -> str:
    said = access.progress_text(told)
    if not told or "of" not in told:
        return f"running{f': {said}' if said else ''}"
    full = told["done"] * BAR // told["of"]
    return f"`{'▰' * full}{'▱' * (BAR - full)}` {said}"


def log(full: Row) -> str:
    """What a submission's owner may read: the verdicts with their reasons, each failed case, the log."""
    told = full["submission"]
    lines = [f"#{told['id']} {told['board']} {told['file_name']} ({MODES[told['mode']]})"]
    for row in told["runs"]:
        found = row["verdict"]
        name = VERDICTS.get(found["name"], found["name"]) if found else row["standing"]
        reason = (found["reason"] if found else "") or row["reason"]
        lines += ["", f"{row['gpu']}: {name}{f': {reason}' if reason else ''}"]
        report = (found["report"] if found else None) or {}
        for phase in report.get("phases", ()):
            lines.append(f"  {phase['name']}: {'passed' if phase['passed'] else 'failed'}")
        cases = [*report.get("tests", ()), *report.get("benchmarks", ())]
        for case, message in zip(cases, failed_tests.once(cases), strict=True):
            if case.get("status") != "pass":
                lines.append(f"  {case.get('phase')} {case.get('index')} ({case.get('spec')}): {case.get('status')}")
                lines += [f"    {line}" for line in message.splitlines()[:40]]
        lines += [f"  | {line}" for line in str(report.get("log") or "").splitlines()[-400:]]
        lines += [f"  attempt {one['number']} at {one['backend']}: {one['state']}" for one in row["attempts"]]
    return "\n".join(lines)


def comparison(full: Row, contexts: Mapping[str, ScoreContext], leaders: Mapping[str, float]) -> str:
    """This submission compared with its owner's best and the board's."""
    told = full["submission"]
    lines = [f"**#{told['id']} {escaped(told['board'])}**"]
    for row in told["runs"]:
        found = row["verdict"]
        if not found or found["score_s"] is None:
            lines.append(f"{escaped(row['gpu'])}: no time to compare")
            continue
        here = found["score_s"]
        parts = [f"{escaped(row['gpu'])}: {score(here, found['low_s'], found['high_s'], ranked=bool(found['ranked']))}"]
        stands = contexts.get(row["gpu"], ScoreContext())
        if stands.best_before_s is not None:
            parts.append(speed_up(here, stands.best_before_s, f"own previous best {seconds(stands.best_before_s)}"))
        if stands.next_s is not None:
            parts.append(speed_up(here, stands.next_s, f"the next ahead, {seconds(stands.next_s)}"))
        if row["gpu"] in leaders:
            parts.append(speed_up(here, leaders[row["gpu"]], f"the first, {seconds(leaders[row['gpu']])}"))
        lines.append(" · ".join(parts))
    return "\n".join(lines)
