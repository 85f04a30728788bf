"""Texts for hosts: a submission, counts, a synced repository, a rejudge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm_bot import cards
from kbslurm_bot.text import fitting


def submission_told(found: Mapping[str, Any]) -> list[str]:
    """Anyone's submission in a few lines."""
    error = found["job"]["error"]
    by, file = f"{cards.escaped(found['user_name'])} (person {found['user_id']})", cards.escaped(found["file_name"])
    lines = [
        f"**#{found['id']}** {cards.escaped(found['leaderboard_name'])} · {cards.MODES[found['mode']]} · {by} · {file}",
        f"{found['job']['status']}{' · deleted' if found['removed_at'] else ''}",
    ]
    if error:
        lines.append(cards.escaped(error)[:600])
    for run in found["runs"]:
        score = f" · {run['score']} s" if run["score"] is not None else ""
        hidden = " (hidden)" if run["secret"] else ""
        lines.append(f"{run['mode']}{hidden} on {cards.escaped(run['runner'])}: {'✓' if run['passed'] else '✗'}{score}")
    return fitting(lines).rstrip("\n").split("\n")


RUNS = {"runs": "in all", "queued": "waiting", "running": "running", "failed": "without a result"}


def stats_told(counts: Mapping[str, Any], seen: Mapping[str, Any]) -> list[str]:
    """Counts, and what needs attention."""
    verdicts = ", ".join(f"{name} {n}" for name, n in counts["verdicts"].items()) or "none"
    lines = [
        f"{counts['submissions']} submissions by {counts['people']} people",
        "runs: " + ", ".join(f"{counts[key]} {word}" for key, word in RUNS.items()),
        f"verdicts: {verdicts}",
        *(
            f"{cards.escaped(gpu)}: {one['runs']} runs, {one['gpu_s']:.0f} GPU-seconds"
            for gpu, one in counts["gpus"].items()
        ),
        "submissions are accepted" if seen["accepts_jobs"] else "submissions are paused (`/admin start`)",
    ]
    if seen["leader"] is None:
        lines.append("no daemon is leading: nothing is started")
    return lines + [f"⚠ {cards.escaped(one['text'])[:300]}" for one in seen["attention"][:8]]


def synced_told(told: Mapping[str, Any]) -> list[str]:
    """The result of syncing a repository."""
    lines = [f"At commit `{str(told['commit'])[:12]}`:"]
    for key in ("created", "updated"):
        lines.append(f"{key}: {', '.join(map(cards.escaped, told[key])) or 'none'}")
    lines += [f"skipped {cards.escaped(one['name'])}: {cards.escaped(one['reason'])}" for one in told["skipped"]]
    return lines + [f"✗ {cards.escaped(one['name'])}: {cards.escaped(one['error'])[:300]}" for one in told["errors"]]


def rejudging_told(told: Mapping[str, Any]) -> list[str]:
    """What a rejudge would change."""
    rows = [f"{one['before']:<16} → {one['after']:<16} {one['runs']:>6}" for one in told["matrix"]]
    stands = f"{told['changed']} would change, {told['open']} open"
    return [
        f"**{cards.escaped(told['board'])}** by version {told['version']}: {stands}",
        *(["```", *rows, "```"] if rows else []),
        f"{told['spent_gpu_s']:.1f} GPU-seconds spent of about {told['expected_gpu_s']:.1f}.",
        "Apply or cancel it with `kbslurm rejudge`.",
    ]
