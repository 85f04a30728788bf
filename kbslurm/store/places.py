"""The health of places: recent outcomes there, their circuit breakers, which of them drain, and what the daemon's log
said of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from kbslurm.domain.breaker import Breaker, Outcomes, kept, told
from kbslurm.domain.drains import Drain, PlaceLine
from kbslurm.store.jsonb import as_jsonb, clean
from kbslurm.store.quarantine import INFRASTRUCTURE
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.settings import PUT_SETTING, SETTING

BREAKER = "breaker:"
RELOAD = "reload"
RELOADED = "reload.answer"
LATELY = 500  # number of recent attempts that a place's health is based on

_OUTCOMES = f"""
SELECT backend, max(good_at) AS good_at, max(ended_at) FILTER (WHERE is_bad) AS bad_at,
    count(DISTINCT person_id) FILTER (WHERE is_bad AND (good_at IS NULL OR ended_at > good_at)) AS people
FROM (
    SELECT a.backend, run.person_id, a.ended_at, a.state = 'dead' AND a.{INFRASTRUCTURE} AS is_bad,
        max(a.ended_at) FILTER (WHERE a.state = 'reported') OVER (PARTITION BY a.backend) AS good_at
    FROM attempt a JOIN run ON run.id = a.run_id
    WHERE a.id > (SELECT max(id) FROM attempt) - {LATELY} AND a.ended_at > %(now)s - interval '1 hour'
) lately GROUP BY backend
"""

KEPT_LINES = 500  # of each place
LOOKED_THROUGH = 20_000  # number of recent attempts that a place's log may show
_DRAINS = "SELECT place, gpu, drained_by AS by, why, at FROM place_drain ORDER BY place, gpu"
_DRAIN = """
INSERT INTO place_drain (place, gpu, drained_by, why, at) VALUES (%(place)s, %(gpu)s, %(by)s, %(why)s, %(now)s)
ON CONFLICT (place, gpu) DO UPDATE SET drained_by = excluded.drained_by, why = excluded.why, at = excluded.at
"""
_RESUME = "DELETE FROM place_drain WHERE place = %(place)s AND (%(gpu)s::text IS NULL OR gpu = %(gpu)s) RETURNING gpu"
_FORGET_LINES = """
DELETE FROM place_line WHERE place = %(place)s AND id <= (
    SELECT id FROM place_line WHERE place = %(place)s ORDER BY id DESC OFFSET %(kept)s LIMIT 1
)
"""
_LINES = """
SELECT place, at, level, text FROM place_line WHERE place = %(place)s AND at > %(since)s ORDER BY id DESC LIMIT %(most)s
"""
# What went wrong there through no fault of the submission, or what the place refused.
_WENT_WRONG = f"""
SELECT a.backend AS place, a.ended_at AS at, a.run_id, a.number, a.gpu, a.node, a.ending, a.reason
FROM attempt a WHERE a.state IN ('dead', 'refused') AND a.ended_at IS NOT NULL
    AND (a.state = 'refused' OR a.{INFRASTRUCTURE})
"""
_TROUBLES = f"""
SELECT * FROM ({_WENT_WRONG} AND a.id > (SELECT max(id) FROM attempt) - {LOOKED_THROUGH}) t
WHERE place = %(place)s AND at > %(since)s ORDER BY at DESC LIMIT %(most)s
"""
_LAST_TROUBLES = f"""
SELECT DISTINCT ON (place) place, at, 'error' AS level, run_id, number, gpu, node, ending, reason
FROM ({_WENT_WRONG} AND a.id > (SELECT max(id) FROM attempt) - {LATELY}) t ORDER BY place, at DESC
"""


class Places(Rows):
    """ports.Places: outcomes, breakers, drains and lines."""

    def outcomes(self, now: datetime) -> Mapping[str, Outcomes]:
        return {
            row["backend"]: Outcomes(people=row["people"], bad_at=row["bad_at"], good_at=row["good_at"])
            for row in self._all(_OUTCOMES, {"now": now})
        }

    def breakers(self) -> Mapping[str, Breaker]:
        found = self._all("SELECT key, value FROM setting WHERE starts_with(key, %(mark)s)", {"mark": BREAKER})
        return {row["key"].removeprefix(BREAKER): kept(row["value"]) for row in found}

    def keep_breaker(self, backend: str, breaker: Breaker) -> None:
        self._do(
            "INSERT INTO setting (key, value) VALUES (%(key)s, %(value)s::text::jsonb)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            {"key": BREAKER + backend, "value": json.dumps(told(breaker))},
        )

    def drains(self) -> Sequence[Drain]:
        return [Drain(**row) for row in self._all(_DRAINS)]

    def drain(self, place: str, gpu: str, why: str, *, by: str, now: datetime | None = None) -> None:
        """Let a place drain, or with `gpu` one type there; a second time changes the reason."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            said = {"place": place, "gpu": gpu, "why": clean(why), "by": by, "now": at}
            connection.execute(_DRAIN.encode(), said)
            data = {"gpu": gpu or None, "why": why, "by": by}
            note_event(connection, "staff.place.drain", f"place:{place}", data, at)

    def resume(self, place: str, gpu: str | None = None, *, by: str, now: datetime | None = None) -> list[str]:
        """Let new runs go there again; without `gpu` for every type. Returns what drained: types, "" for the place."""
        with self._pool.transaction() as connection:
            gone = [row["gpu"] for row in connection.execute(_RESUME.encode(), {"place": place, "gpu": gpu}).fetchall()]
            if gone:
                data = {"gpus": [one for one in gone if one], "by": by}
                note_event(connection, "staff.place.resume", f"place:{place}", data, or_now(now))
        return gone

    def order_reload(self, order: str, *, by: str, now: datetime | None = None) -> None:
        """Have the daemons read their configuration anew."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            value = {"order": order, "by": by, "at": at.isoformat()}
            connection.execute(PUT_SETTING.encode(), {"key": RELOAD, "value": Jsonb(value)})
            note_event(connection, "staff.place.reload", "places", {"by": by}, at)

    def reload_order(self) -> str:
        found = self._one(SETTING, {"key": RELOAD})
        return "" if found is None else str(found["value"].get("order", ""))

    def answer_reload(self, answer: Mapping[str, Any]) -> None:
        self._do(PUT_SETTING, {"key": RELOADED, "value": as_jsonb(answer)})

    def reload_answer(self) -> Mapping[str, Any]:
        """What the leader said when it last read its configuration anew; empty if it never did."""
        found = self._one(SETTING, {"key": RELOADED})
        return {} if found is None else dict(found["value"])

    def write_down(self, lines: Sequence[PlaceLine]) -> None:
        if not lines:
            return
        with self._pool.transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(
                b"INSERT INTO place_line (place, level, text, at) VALUES (%(place)s, %(level)s, %(text)s, %(at)s)",
                [{"place": one.place, "level": one.level, "text": clean(one.text), "at": one.at} for one in lines],
            )
            for place in sorted({one.place for one in lines}):
                cursor.execute(_FORGET_LINES.encode(), {"place": place, "kept": KEPT_LINES})

    def lines(self, place: str, *, most: int, since: datetime) -> list[PlaceLine]:
        """The newest of what is known of this place, oldest first: the daemon's lines, and attempts that went wrong."""
        told = {"place": place, "most": most, "since": since}
        found = [PlaceLine(**row) for row in self._all(_LINES, told)]
        found += [_trouble_line(row) for row in self._all(_TROUBLES, told)]
        return sorted(found, key=lambda one: one.at)[-most:]

    def last_troubles(self) -> Mapping[str, PlaceLine]:
        """By place, the last of its recent attempts that went wrong through no fault of the submission."""
        return {row["place"]: _trouble_line(row) for row in self._all(_LAST_TROUBLES)}


def _trouble_line(row: Mapping[str, Any]) -> PlaceLine:
    where = f" at {row['node']}" if row["node"] else ""
    what = f"run {row['run_id']}, attempt {row['number']} ({row['gpu']}{where}): {row['ending'] or 'refused'}"
    text = f"{what}: {row['reason']}" if row["reason"] else what
    return PlaceLine(place=row["place"], at=row["at"], level="error", text=text)
