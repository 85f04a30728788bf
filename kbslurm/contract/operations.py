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
