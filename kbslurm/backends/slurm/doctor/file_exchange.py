"""How a node and the login node exchange files: delay, clocks, and whether mkdir and rename are atomic."""

from __future__ import annotations

from collections.abc import Iterator

from kbslurm.backends.slurm.doctor.node_facts import Sight
from kbslurm.backends.slurm.doctor.scheduler_settings import OFF_S
from kbslurm.backends.slurm.doctor.shared_root import RACES
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.domain.site import Site

LATE_S = 10.0


def delay_findings(site: Site, sight: Sight, where: str) -> Iterator[Finding]:
    """How long a file takes to be seen on the other side, and how far the clocks differ."""
    told = (sight.ping_sent_at, sight.ping_seen_at, sight.pong_sent_at, sight.number("pong_seen_at"))
    if any(moment is None for moment in told):
        yield caution("file latency", "wasn't measured", "Run the check again.", where=where)
        return
    there_sent, here_seen, here_sent, there_seen = (moment or 0.0 for moment in told)
    forth_s, back_s = here_seen - there_sent, there_seen - here_sent
    off_s, trip_s = (forth_s - back_s) / 2, forth_s + back_s
    if abs(off_s) > max(OFF_S, trip_s / 2):
        yield caution(
            "clocks",
            f"the node's clock differs from ours by about {abs(off_s):.1f} s",
            "Ask the admins for a time server: waiting times are off by that much, but scores aren't affected.",
            where=where,
        )
    else:
        yield passed("clocks", f"node and login node agree within {max(abs(off_s), 0.05):.2f} s", where=where)
    late_s = max(0.0, trip_s) / 2
    text = f"a file written on the node is seen here after about {late_s:.2f} s ({max(0.0, trip_s):.2f} s round trip)"
    if late_s > LATE_S:
        yield caution("file latency", text, "Put shared_root on a file system with less caching.", where=where)
    else:
        yield passed("file latency", text, where=where)
    if late_s > max(1.0, site.paths.visibility_delay_s):
        yield caution(
            "visibility",
            f"visibility_delay is {site.paths.visibility_delay_s:g} s, but files take {late_s:.1f} s",
            f'Set visibility_delay = "{2 * late_s:.0f}s" under [paths].',
            where=where,
        )
    else:
        yield passed("visibility", f"within visibility_delay ({site.paths.visibility_delay_s:g} s)", where=where)


def atomicity_findings(sight: Sight, where: str) -> Iterator[Finding]:
    """Whether a folder is made by one side only, and a file that is being replaced is read whole."""
    if not sight.raced:
        return
    both = sight.won_here & set(sight.won_there)
    made = sight.won_here | set(sight.won_there)
    if both or len(sight.won_there) != len(set(sight.won_there)):
        yield failed(
            "mkdir between nodes",
            f"{len(both)} of {RACES} folders were created by both sides: an attempt could run twice",
            "Use another file system for shared_root.",
            where=where,
        )
    elif len(made) == RACES:
        split = f"{len(sight.won_here)} here, {len(set(sight.won_there))} there"
        yield passed("mkdir between nodes", f"{RACES} folders, each created by one side only ({split})", where=where)
    else:
        yield caution(
            "mkdir between nodes", f"only {len(made)} of {RACES} were created", "Run the check again.", where=where
        )
    torn = sight.number("torn_reads")
    if torn:
        yield caution(
            "rename between nodes",
            f"{torn:.0f} of {RACES} reads of a file that was being replaced failed or were incomplete",
            "A few are harmless, since reads are repeated; if there are many, use another file system.",
            where=where,
        )
    elif torn is not None:
        yield passed(
            "rename between nodes", f"{RACES} reads of a file that was being replaced were complete", where=where
        )
