"""The state of the service: health, queue, counts, and the audit log."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Id, Shape


class Health(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok"}})
    status: Literal["ok"]


class Accepts(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok", "accepts_jobs": True}})
    status: Literal["ok"]
    accepts_jobs: bool


class GpuStats(Shape):
    runs: int
    gpu_s: float


class StatsTold(Shape):
    """Counts, without deleted submissions."""

    submissions: int
    people: int
    runs: int
    queued: int
    running: int
    failed: int
    verdicts: dict[str, int]
    gpus: dict[str, GpuStats]


class Stats(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "status": "ok",
                "stats": {
                    "submissions": 12,
                    "people": 4,
                    "runs": 16,
                    "queued": 1,
                    "running": 2,
                    "failed": 0,
                    "verdicts": {"passed": 9, "wrong": 4},
                    "gpus": {"H100": {"runs": 16, "gpu_s": 301.5}},
                },
            }
        },
    )
    status: Literal["ok"]
    stats: StatsTold


class AuditEntry(Shape):
    id: Id
    act: str
    subject: str
    by: str
    via: str = Field(description="How: command, api, page, discord or daemon; empty in older entries.")
    where: str = Field(description="An address, or an account and its machine.")
    data: dict[str, Any]
    at: str


class Audit(Shape):
    audit: list[AuditEntry]


class QueueTold(Shape):
    gpu: str
    queued: int
    launching: int
    running: int
    oldest_at: str | None


class AttentionTold(Shape):
    kind: str
    subject: str
    text: str
    since: str


class Overview(Shape):
    """An overview for hosts."""

    accepts_jobs: bool
    leader: str | None
    queue: list[QueueTold]
    attention: list[AttentionTold]


class ServiceStatus(Shape):
    """How the service is doing. Each trouble needs somebody to act; what needs attention does no harm yet."""

    database: str
    daemon: str
    accepts_jobs: bool | None
    queue: list[dict[str, Any]]
    backends: list[dict[str, Any]]
    attention: list[dict[str, Any]]
    waiting: list[dict[str, Any]]
    places: list[dict[str, Any]]
    overflow: dict[str, Any]
    fleet: list[dict[str, Any]]
    warm: dict[str, Any] = Field(default_factory=dict)
    drains: list[dict[str, Any]] = Field(default_factory=list)
    reload: dict[str, Any] = Field(default_factory=dict)
    troubles: list[str]
    next: list[str]


class LastEvent(Shape):
    """The newest event: something that happened to a submission, or a host's act."""

    id: Id
    kind: str
    age_s: float


class DatabaseTold(Shape):
    """The database. `needs`: the revision that this version works with; `lag_s`: how long ago the leader renewed its
    lease; `clock_off_s`: by how much the database's clock is ahead of this host's. `troubles`: what to look at."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "schema": "current",
                "revision": "0037",
                "needs": "0037",
                "server": "Postgres 18.4",
                "size_bytes": 41_000_000,
                "round_trip_ms": 0.8,
                "clock_off_s": 0.001,
                "leader": "login1:4711",
                "leads_for_s": 86400.0,
                "lag_s": 1.2,
                "last_event": {"id": 90210, "kind": "run.scored", "age_s": 12.5},
                "troubles": [],
            }
        },
    )
    schema_: Literal["current", "behind", "ahead"] = Field(alias="schema")
    revision: str
    needs: str
    server: str
    size_bytes: int
    round_trip_ms: float
    clock_off_s: float
    leader: str | None
    leads_for_s: float | None
    lag_s: float | None
    last_event: LastEvent | None
    troubles: list[str]
