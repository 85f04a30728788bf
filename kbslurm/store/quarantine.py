"""Excluded nodes: where the same run failed before, and where runs of several people failed."""

from __future__ import annotations

# Where this run failed before, and where runs of three different people failed within the hour before: no one person
# can exclude a node for everyone. 'refused' and the submitter's own limits say nothing about a node.
QUARANTINE_S = 3600

QUARANTINE_PEOPLE = 3

INFRASTRUCTURE = (
    "ending IN ('node_failure', 'preempted', 'boot_failure', 'image', 'no_report', 'bad_report', 'vanished',"
    " 'unsteady')"
)

QUARANTINED = f"""
SELECT a.backend, a.node, count(DISTINCT run.person_id) AS people, max(a.ended_at) AS since
FROM attempt a JOIN run ON run.id = a.run_id
WHERE a.state = 'dead' AND a.node IS NOT NULL AND a.{INFRASTRUCTURE}
    AND a.ended_at > %(now)s - interval '{QUARANTINE_S} seconds'
GROUP BY a.backend, a.node HAVING count(DISTINCT run.person_id) >= {QUARANTINE_PEOPLE}
"""

AVOID = f"""
SELECT node FROM attempt
WHERE run_id = %(run)s AND backend = %(backend)s AND state = 'dead' AND node IS NOT NULL AND {INFRASTRUCTURE}
UNION
SELECT node FROM ({QUARANTINED}) q WHERE q.backend = %(backend)s
ORDER BY node
"""
