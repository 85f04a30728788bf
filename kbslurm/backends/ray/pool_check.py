"""Does what runs at a Ray cluster match what is configured? Pure: the answers of its API are given."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbslurm.backends.ray.pool import FILE_LABEL, KIND_LABEL, least_of, most_of, most_workers, offered
from kbslurm.config.sections.ray_pool import HEAD, RayPoolSection
from kbslurm.domain.finding import Finding, caution, failed, passed

NODES = "/api/v0/nodes?detail=true&limit=10000"
STATUS = "/api/cluster_status?format=1"
SHOWN = 3
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_COUNTED = re.compile(r" (\d+) (\S+)$")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node that is alive."""

    is_head: bool
    resources: Mapping[str, float]
    labels: Mapping[str, str]

    @property
    def kind(self) -> str:
        """Which of the pool's kinds it was started as; empty: somebody added it by hand."""
        return self.labels.get(KIND_LABEL, "")

    def holds(self, asked: Mapping[str, float]) -> int:
        """How many runs that ask for this it could hold at once."""
        wanted = {name: amount for name, amount in asked.items() if amount}
        return min((int(self.resources.get(name, 0.0) / amount) for name, amount in wanted.items()), default=1)


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """What Ray's autoscaler says of itself: how many nodes of each kind it sees, and what it couldn't start."""

    kinds: Mapping[str, int]
    pending: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


def nodes_in(answer: Any) -> list[Node] | None:
    """The nodes that are alive, from the answer to NODES; None if it isn't one."""
    rows = _within(answer, "data", "result", "result")
    if not isinstance(rows, list):
        return None
    found = []
    for row in rows:
        if not isinstance(row, Mapping) or row.get("state") != "ALIVE":
            continue
        resources, labels = row.get("resources_total"), row.get("labels")
        found.append(
            Node(
                is_head=row.get("is_head_node") is True,
                resources={str(name): float(amount) for name, amount in _table(resources) if _is_amount(amount)},
                labels={str(name): str(text) for name, text in _table(labels)},
            )
        )
    return found


def autoscaler_in(answer: Any) -> Autoscaler | None:
    """The autoscaler's own words, from the answer to STATUS; None if it said nothing."""
    text = _within(answer, "data", "clusterStatus")
    if not isinstance(text, str) or "Node status" not in text:
        return None
    parts: dict[str, list[str]] = {}
    here: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            here = []  # what follows is about resources
        elif line.startswith(" "):
            here.append(line.rstrip())
        else:
            here = parts.setdefault(line.strip().rstrip(":"), [])
    kinds: Counter[str] = Counter()
    for part in ("Active", "Idle", "Healthy"):
        for line in parts.get(part, ()):
            if counted := _COUNTED.match(line):
                kinds[counted[2]] += int(counted[1])
    pending, failures = (_told(parts.get(part, ())) for part in ("Pending", "Recent failures"))
    return Autoscaler(kinds=kinds, pending=pending, failures=failures)


def gpu_finding(
    place: str,
    gpu: str,
    asked: Mapping[str, float],
    slots: int,
    pool: RayPoolSection | None,
    nodes: Sequence[Node],
) -> Finding:
    """Whether somebody has what a run on this type asks Ray for, now or when it waits, and enough for its slots."""
    said = ", ".join(f"{name} {amount:g}" for name, amount in asked.items() if amount)
    at_once = sum(node.holds(asked) for node in nodes)
    kinds = () if pool is None else tuple(told for told in pool.workers.values() if told.gpu == gpu and not told.hosts)
    later = sum(most_of(told) * told.runs for told in kinds)
    if not at_once and later:
        return passed("workers", f"none has {said} now; workers for {later} at once are started when needed", where=gpu)
    if not at_once and pool is None:
        text = f"no worker that is up has {said}: runs wait for one"
        return caution("workers", text, "Start one, or let Ray's autoscaler do so.", where=gpu)
    if not at_once:
        fix = f"Let a kind of worker of ray.{place}.pool offer it, or start one by hand; docs/ray.md shows the lines."
        return failed("workers", f"no worker has {said}, and none would be started: runs would wait", fix, where=gpu)
    most = max(at_once, later)
    if slots > 2 * most:
        text = f"{most} at once with {said}, but {slots} slots: the others wait in Ray's queue"
        return caution("workers", text, f"Set slots to at most {2 * most}, unless more workers come.", where=gpu)
    more = f", up to {later} when needed" if later > at_once else ""
    return passed("workers", f"{at_once} at once with {said}{more}", where=gpu)


def findings(
    place: str,
    gpus: Mapping[str, Mapping[str, float]],
    pool: RayPoolSection,
    nodes: Sequence[Node],
    autoscaler: Autoscaler | None,
    digest: str,
) -> Iterator[Finding]:
    """`gpus`: what one run of each of the place's types asks Ray for. `digest`: that of the file that the configuration
    gives now."""
    workers = [node for node in nodes if not node.is_head]
    again = f"Run: kbslurm ray pool {place} --out FILE, then: ray up FILE"
    launched = autoscaler is not None and autoscaler.kinds.get(HEAD, 0) > 0
    yield from _autoscaler(autoscaler, launched=launched, again=again)
    if launched:
        yield _file(next((node for node in nodes if node.is_head), None), digest, again)
    counts = Counter(node.kind for node in workers)
    for name, told in pool.workers.items():
        yield _kind(name, counts[name], least_of(told), most_of(told), again)
        node = next((node for node in workers if node.kind == name), None)
        if node is not None and (short := _short(node, offered(told, gpus.get(told.gpu, {})))):
            yield caution("pool", f"a node of this kind offers {short}", again, where=name)
    for name in sorted(set(counts) - set(pool.workers) - {""}):
        text = f"{_count(counts[name], 'node')} of a kind that isn't in ray.{place}.pool.workers"
        yield caution("pool", text, again, where=name)
    started = sum(counts[name] for name in pool.workers)
    if started > most_workers(pool):
        yield caution("pool", f"{started} workers run, more than max = {most_workers(pool)} in all", again)
    if counts[""]:
        yield passed("pool", f"{_count(counts[''], 'node')} added by hand")


def _autoscaler(told: Autoscaler | None, *, launched: bool, again: str) -> Iterator[Finding]:
    if told is None:
        text = "Ray says nothing of an autoscaler, so no worker is started or stopped"
        yield failed("autoscaler", text, again)
        return
    if not launched:
        text = "the head was started without the pool's file, so no worker is started or stopped"
        yield failed("autoscaler", text, again)
        return
    waits = f"; {len(told.pending)} being started" if told.pending else ""
    yield passed("autoscaler", f"the head was started by Ray's launcher{waits}")
    if told.failures:
        text = f"lately it failed to start or lost: {'; '.join(told.failures[:SHOWN])}"
        fix = "`ray monitor FILE` shows its log; another zone, or machines that aren't preemptible, may be had."
        yield caution("autoscaler", text, fix)


def _file(head: Node | None, digest: str, again: str) -> Finding:
    if head is not None and digest and head.labels.get(FILE_LABEL) == digest:
        return passed("pool", "it was started from the file that the configuration gives")
    return caution("pool", "it was started from another file than the configuration gives now", again)


def _kind(name: str, count: int, least: int, most: int, again: str) -> Finding:
    if count > most:
        return caution("pool", f"{_count(count, 'node')}, more than max = {most}", again, where=name)
    if count < least:
        text = f"{_count(count, 'node')}, fewer than min = {least}"
        return caution("pool", text, "If that stays so, `ray monitor FILE` says why.", where=name)
    return passed("pool", f"{_count(count, 'node')}, between {least} and {most}", where=name)


def _short(node: Node, wanted: Mapping[str, int]) -> str:
    """What a node of ours has less of than its kind should; empty if nothing."""
    short = [
        f"{node.resources.get(name, 0.0):g} {name} instead of {amount}"
        for name, amount in wanted.items()
        if node.resources.get(name, 0.0) < amount
    ]
    return ", ".join(short)


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _told(lines: Sequence[str]) -> tuple[str, ...]:
    """Ray's own lines, each short and plain, without its word for an empty list."""
    plain = (_CONTROL.sub(" ", line).strip()[:160] for line in lines)
    return tuple(line for line in plain if line and not (line.startswith("(no ") and line.endswith(")")))


def _within(answer: Any, *keys: str) -> Any:
    for key in keys:
        answer = answer.get(key) if isinstance(answer, Mapping) else None
    return answer


def _table(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
