"""A harness that judges nothing and is over at once: for storms of hundreds of runs through real processes.

It is called like the real one (`MANIFEST --key KEY --out OUT`) and seals a report that the service accepts. What it
does is said by words in the submission's text: `passed`, `wrong`, `no-report`, `forged`, `infrastructure`, `slow`.
Each start leaves a file `ran-PID` in the attempt's folder: an attempt that ran twice has two.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "eval"), str(Path(__file__).resolve().parents[3])]

from kbslurm_eval.shared.wire import (  # noqa: E402
    PHASES,
    Isolation,
    Manifest,
    PhaseResult,
    Report,
    VerdictName,
    commitment,
    read_manifest,
    seal,
)
from tests.timed import timed as made_of_samples  # noqa: E402


def main(argv: list[str]) -> int:
    manifest_file, key_file, out = Path(argv[0]), Path(argv[2]), Path(argv[4])
    started_at_ns = time.time_ns()
    (manifest_file.parent / f"ran-{os.getpid()}").touch()
    manifest = read_manifest(manifest_file.read_bytes())
    words = manifest.source.split()
    if "slow" in words:
        time.sleep(3600)
    if "no-report" in words:
        return 1
    key = b"not the key" if "forged" in words else key_file.read_bytes()
    text = seal(report(manifest, words, started_at_ns), key)
    fresh = out / ".report"
    fresh.write_text(text)
    fresh.rename(out / "report.json")
    return 0


def report(manifest: Manifest, words: list[str], started_at_ns: int) -> Report:
    verdict: VerdictName = "wrong" if "wrong" in words else "passed"
    if "infrastructure" in words:
        verdict = "infrastructure"
    now = time.time_ns()
    passed = verdict == "passed"
    timed = passed and manifest.mode in ("leaderboard", "benchmark")
    names = PHASES[manifest.mode] if passed else PHASES[manifest.mode][:1]
    measured: dict[str, Any] = {"score_s": None, "interval_s": None, "benchmarks": []}
    if timed:
        measured |= made_of_samples(
            manifest.mode,
            len(manifest.benchmarks),
            launches=manifest.budget.launches,
            calls=manifest.budget.calls,
            score_s=0.001,
            doubt=0.1,
            ranking_by=manifest.ranking_by,
        )
    return Report(
        version=manifest.version,
        token=manifest.token,
        attempt=manifest.attempt,
        nonce=manifest.nonce,
        mode=manifest.mode,
        problem_digest=manifest.problem_digest,
        harness_digest="instant",
        verdict=verdict,
        reason="" if passed else "as its source says",
        tests=[],
        phases=[PhaseResult(name=n, passed=passed, started_at_ns=started_at_ns, ended_at_ns=now) for n in names],
        isolation=Isolation(level=0, means="none"),
        started_at_ns=started_at_ns,
        ended_at_ns=now,
        submission_sha256=hashlib.sha256(manifest.source.encode()).hexdigest(),
        seed_commitment=commitment(manifest.secret_seed),
        **measured,
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
