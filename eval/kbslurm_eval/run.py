"""The harness's own front: what `python3 -I eval/` does with its arguments.

    MANIFEST --key FILE --out DIR [--supervisor DIR --link DIR] [--work DIR] [--min-isolation N]
    --probe      the isolation that can be reached here, as JSON
    --digest     the digest of this program's sources
    --mutate M   what the check of manifest M's problem makes of spoilt answers, as JSON
    --image-digest PATH   the digest of an image, a SIF file or a directory

Exit 0 when a report was written, whatever the verdict; 6 when none could be, with one sentence on stderr. The key
file is removed once it is read, and so is the manifest where a runner could see it (isolation below 2).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from .cage.supervisor import Supervisor
    from .shared.wire import Manifest, Report

NO_REPORT = 6
UNWRITTEN = 74  # the service knows it, too: of a run whose disk is full this number may be all that is left
KEY_CAP = 4096
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


class CantJudge(RuntimeError):
    """No report can be written."""

    status = NO_REPORT


class CantWrite(CantJudge):
    """There is a report, and no room for it."""

    status = UNWRITTEN


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    argv = sys.argv[1:] if argv is None else list(argv)
    match argv:
        case ["--jail"]:  # the launcher and the runner start often and need little: nothing else is imported for them
            from .cage import guard

            return guard.launcher()
        case ["--runner", folder]:
            from .runner import serve

            return serve.serve(folder)
        case ["--chorus", fd]:
            from .judge import rank_reference

            return rank_reference.sing(int(fd))
        case ["--aside", fd]:
            from .judge import compiled_reference

            return compiled_reference.serve(int(fd))
        case ["--warm", shared, bell, judge_pid]:
            from .cage import core_warmer

            return core_warmer.serve(int(shared), int(bell), int(judge_pid))
        case ["--digest"]:
            from .shared.program import harness_digest

            print(harness_digest())
            return 0
        case ["--image-digest", image]:
            from pathlib import Path

            from .shared.image_digest import UNREADABLE, digest_of

            try:
                print(digest_of(Path(image)))
            except PermissionError as error:
                print(f"this account can't read {error.filename}, so what the image is isn't known", file=sys.stderr)
                return UNREADABLE
            return 0
        case ["--mutate", manifest]:
            import json

            print(json.dumps(mutated(manifest)))
            return 0
        case ["--probe"]:
            import json

            print(json.dumps(probe(), sort_keys=True))
            return 0
        case _:
            return _judging(argv)


def _judging(argv: Sequence[str]) -> int:
    import argparse
    from pathlib import Path

    parser = argparse.ArgumentParser(prog="eval", description="Judge one manifest and write a sealed report.")
    parser.add_argument("manifest", type=Path, help="manifest.json")
    parser.add_argument("--key", type=Path, required=True, help="file with the attempt's key; removed once it is read")
    parser.add_argument("--out", type=Path, required=True, help="folder for report.json and heartbeat.json")
    parser.add_argument("--supervisor", type=Path, help="folder by which a job script is asked for runner containers")
    parser.add_argument("--link", type=Path, help="shared-memory folder that is bound into those containers")
    parser.add_argument("--work", type=Path, help="folder for the links of runners on this machine (default: /dev/shm)")
    parser.add_argument("--min-isolation", type=int, default=0, metavar="N", help="refuse to run below this level")
    parser.add_argument("--probe", action="store_true", help="print the isolation that can be reached here and end")
    parser.add_argument("--digest", action="store_true", help="print the digest of this program and end")
    told = parser.parse_args(argv)
    try:
        judge(
            told.manifest,
            told.key,
            told.out,
            supervisor=told.supervisor,
            link=told.link,
            work=told.work,
            least_level=told.min_isolation,
        )
    except CantJudge as error:
        print(f"eval: {error}", file=sys.stderr)
        return error.status
    return 0


def judge(
    manifest: Path,
    key: Path,
    out: Path,
    *,
    supervisor: Path | None = None,
    link: Path | None = None,
    work: Path | None = None,
    least_level: int = 0,
) -> Report:
    """Judge the manifest in this file and leave DIR/report.json, sealed. This process hides itself: use one of its
    own."""
    import signal

    from .cage import guard
    from .judge.judge import Judge, put_file
    from .shared import wire

    told, secret = _read(manifest, key)
    own = guard.seen_by_judge()
    keep_memory()
    troubles = guard.hide_judge()
    signal.signal(signal.SIGTERM, _stop)
    ground, level = _ground(told, supervisor, link, work)
    _remove(key)
    if level < 2:
        _remove(manifest)
    out.mkdir(parents=True, exist_ok=True)
    found = Judge(
        told, ground, heartbeat=out / "heartbeat.json", artifacts=out / "artifacts", least_level=least_level, own=own
    )
    found.note([*ground.notes, *troubles])
    report = found.judge()
    try:
        put_file(out / "report.json", wire.seal(report, secret))
    except OSError as error:
        raise CantWrite(f"the report can't be written: {error}") from None
    return report


def keep_memory() -> None:
    """Memory that was freed is used again instead of given back: for each call the judge makes inputs, copies and
    answers of some hundred KiB, and touching that much new memory takes longer than the work that is done in it."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # glibc's, of which older ones take no more than 32 MiB; the second without the first would be worse than neither
    if mallopt is not None and mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1:
        mallopt(M_TRIM_THRESHOLD, 128 << 20)


def _stop(number: int, frame: Any) -> None:
    raise SystemExit(143)


def _read(manifest: Path, key: Path) -> tuple[Manifest, bytes]:
    from .shared import wire

    try:
        with key.open("rb") as file:
            secret = file.read(KEY_CAP)
        told = wire.read_manifest(manifest.read_bytes())
    except OSError as error:
        raise CantJudge(f"{error.filename} can't be read: {error.strerror}") from None
    except wire.WireError as error:
        raise CantJudge(f"the manifest can't be used: {error}") from None
    if not secret:
        raise CantJudge(f"the key file {key} is empty")
    return told, secret


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass  # on a read-only mount it can't be; no runner sees that mount


def _ground(told: Manifest, supervisor: Path | None, link: Path | None, work: Path | None) -> tuple[Supervisor, int]:
    from .cage.supervisor import CantStart, Doorbell, Local
    from .judge.ranks_launch import limits_of, ranks_of

    limits, ranks = limits_of(told), ranks_of(told)
    if supervisor is not None:
        if link is None:
            raise CantJudge("--supervisor needs --link, the folder that its runners share with the judge")
        try:
            return Doorbell(supervisor, link, limits, ranks=ranks), 2
        except CantStart as error:
            raise CantJudge(str(error)) from None
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    level, _ = reachable(None if work is None else str(work))
    try:
        return Local(limits, level=level, shm=None if work is None else str(work), ranks=ranks), level
    except OSError as error:
        raise CantJudge(f"no folder for the runners' links: {error}") from None


def reachable(work: str | None = None) -> tuple[int, list[str]]:
    """The highest level at which a runner really starts here, and what kept it from more."""
    import os

    from .cage.supervisor import CantStart, Local
    from .shared.wire import Limits

    notes: list[str] = []
    highest = int(os.environ.get("KBSLURM_EVAL_LEVEL", "2"))
    for level in range(min(2, highest), -1, -1):
        ground = Local(Limits(), level=level, shm=work)
        try:
            _tried(ground)
        except CantStart as error:
            notes.append(f"level {level}: {error}")
            continue
        finally:
            ground.close()
        return level, notes
    return 0, notes


def _tried(ground: Any) -> None:
    from .cage.supervisor import CantStart
    from .judge.judge import Allowance, Launch, Pulse, Rejected

    try:
        launch = Launch(ground, Allowance(left_s=60, whole_s=60), Pulse(None))
    except Rejected as error:
        raise CantStart(error.said) from None
    launch.close()


def mutated(manifest: str) -> dict[str, Any]:
    """What a problem's check makes of spoilt answers. No submission is run; a reference in C++ is compiled first."""
    from pathlib import Path

    from .cage.supervisor import CantStart
    from .judge import mutate
    from .judge.judge import Judge
    from .judge.reference import ProblemTrouble
    from .shared import wire

    told = wire.read_manifest(Path(manifest).read_bytes())
    if not told.build.adapter:
        return mutate.of_manifest(told, None)
    ground, _ = _ground(told, None, None, None)
    try:
        return mutate.of_manifest(told, Judge(told, ground).compiled_reference())
    except (ProblemTrouble, CantStart) as trouble:
        return {"findings": [], "trouble": str(trouble)}
    finally:
        ground.close()


def probe() -> dict[str, Any]:
    """The isolation that can be reached here: level, means, what is missing, and what a runner found from inside."""
    from .cage import guard
    from .cage.supervisor import Local
    from .judge.judge import Allowance, Launch, Pulse
    from .shared.wire import Limits

    own = guard.seen_by_judge()
    level, notes = reachable()
    ground = Local(Limits(), level=level)
    try:
        launch = Launch(ground, Allowance(left_s=60, whole_s=60), Pulse(None))
        found, missing = guard.level_of(launch.seen, own, container=False)
        launch.close()
    finally:
        ground.close()
    return {"level": found, "means": ground.means, "notes": [*notes, *missing], "seen": launch.seen}
