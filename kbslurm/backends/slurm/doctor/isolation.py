"""The result of a rehearsed attempt on a node: the isolation that its judge found, its image, its scratch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbslurm.backends.slurm.doctor.node_facts import Sight
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.domain.site import Site
from kbslurm_eval.shared.wire import Report


def isolation_findings(site: Site, sight: Sight, boards: Mapping[str, int], where: str) -> Iterator[Finding]:
    """The result of a complete attempt: the isolation that its judge found, the image that it ran in, its scratch."""
    report = sight.report
    if report is None:
        if sight.unreported:
            remedy = "Until this works, every run here will fail like this one."
            yield failed("rehearsal", f"a complete attempt gave no report: {sight.unreported}", remedy, where=where)
        return
    if report.verdict != "passed":
        remedy = "Check the reason; any run here would fail like this."
        yield failed("rehearsal", f"a correct answer got {report.verdict}: {report.reason}", remedy, where=where)
        return
    took_s = (report.ended_at_ns - report.started_at_ns) / 1e9
    yield passed("rehearsal", f"a complete attempt was judged in {took_s:.1f} s", where=where)
    yield _level_finding(site, report, boards, where)
    digest, pinned = str(report.host.get("image_digest", "")), report.host.get("image_pinned")
    if digest:
        seen = {"file": "over its bytes", "tree": "over its files", "record": "as its lock says"}
        how = seen.get(str(report.host.get("image_seen")), "")
        text = f"{digest[:19]}… {how}, {'as pinned' if pinned else 'not pinned'}"
        yield passed("image as it ran", text, where=where)
    for note in report.isolation.notes:
        if note.startswith("all that a runner may write: ") and "memory" not in note:
            remedy = "With util-linux 2.37 or newer and user namespaces on the node it can be memory of a fixed size."
            yield caution("a runner's scratch", note.partition(": ")[2], remedy, where=where)
        elif note.startswith("all that a runner may write: "):
            yield passed("a runner's scratch", note.partition(": ")[2], where=where)


def _level_finding(site: Site, report: Report, boards: Mapping[str, int], where: str) -> Finding:
    level, means = report.isolation.level, report.isolation.means
    text = f"level {level} ({means}) was achieved"
    lacks = "; ".join(note for note in report.isolation.notes if not note.startswith("all that a runner"))
    if level < site.ranked_min_isolation:
        missing = f"Missing: {lacks}. " if lacks else ""
        return failed(
            "isolation achieved",
            f"{text}, but the site's policy requires {site.ranked_min_isolation} for a run to rank, so none would",
            f"{missing}Provide what is missing on the nodes, or lower ranked_min_isolation if that is intended.",
            where=where,
        )
    short = sorted(name for name, wanted in boards.items() if wanted > level)
    if short:
        return caution(
            "isolation achieved",
            f"{text}, and {', '.join(short)} want{'' if len(short) > 1 else 's'} more for a run to rank",
            "Choose another GPU type for them, or a lower level (kbslurm board edit --min-isolation).",
            where=where,
        )
    return passed("isolation achieved", f"{text}; runs rank here from {site.ranked_min_isolation}", where=where)
