"""A harness that judges nothing: it says when its first line ran, works for as long as the source says, and reports.

Called like the real one, in the same container, with the real wire beside it. `SECONDS` is the submission's first word
that is a number; its report is sealed like every other.
"""

import time

STARTED_AT_NS = time.time_ns()  # before anything else is imported: the first line is what is measured

import argparse  # noqa: E402
import hashlib  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from kbslurm_eval.shared import image_digest, wire  # noqa: E402


def main() -> int:
    if sys.argv[1] == "--image-digest":  # asked once per node, and again for every job if it weren't answered
        print(image_digest.digest_of(Path(sys.argv[2])))
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given, _ = parser.parse_known_args()
    manifest = wire.read_manifest(given.manifest.read_bytes())
    given.out.mkdir(exist_ok=True)
    leave(given.out / "heartbeat.json", b'{"phase": "test", "done": 1}')
    time.sleep(seconds_of(manifest.source))
    leave(given.out / "report.json", wire.seal(report(manifest), given.key.read_bytes()).encode())
    return 0


def seconds_of(source: str) -> float:
    return next((float(word) for word in source.split() if word.replace(".", "", 1).isdigit()), 0.0)


def report(manifest: wire.Manifest) -> wire.Report:
    now = time.time_ns()
    return wire.Report(
        version=manifest.version,
        token=manifest.token,
        attempt=manifest.attempt,
        nonce=manifest.nonce,
        mode=manifest.mode,
        problem_digest=manifest.problem_digest,
        harness_digest="bench",
        verdict="passed",
        reason="",
        score_s=None,
        interval_s=None,
        tests=[],
        benchmarks=[],
        phases=[
            wire.PhaseResult(name=name, passed=True, started_at_ns=STARTED_AT_NS, ended_at_ns=now)
            for name in wire.PHASES[manifest.mode]
        ],
        isolation=wire.Isolation(level=0, means="none"),
        started_at_ns=STARTED_AT_NS,
        ended_at_ns=now,
        submission_sha256=hashlib.sha256(manifest.source.encode()).hexdigest(),
        seed_commitment=wire.commitment(manifest.secret_seed),
    )


def leave(path: Path, text: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(text)
    fresh.rename(path)


if __name__ == "__main__":
    raise SystemExit(main())
