"""The harness's own front: what `python3 -I eval/` does with its arguments.

    MANIFEST --key FILE --out DIR [--supervisor DIR --link DIR] [--work DIR] [--min-isolation N]
    --probe      the isolation that can be reached here, as JSON
    --digest     the digest of this program's sources
    --mutate M   what the check of manifest M's problem makes of spoilt answers, as JSON
    --inputs M   whether manifest M's problem can make its inputs, tried in a runner's cage
    --image-digest PATH   the digest of an image, a SIF file or a directory

Exit 0 when a report was written, whatever the verdict; 6 when none could be, with one sentence on stderr. The key
file is removed once it is read, and so is the manifest where a runner could see it (isolation below 2).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

TYPE_CHECKING = False  # launchers and runners start often, and `typing` takes long to import
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from kbslurm_eval.cage.runners import Runners
    from kbslurm_eval.shared.wire import Manifest, Report

NO_REPORT = 6
UNWRITTEN = 74  # the service knows it, too: of a run whose disk is full this number may be all that is left
KEY_CAP = 4096
ENDS_S = 3.0
OF_THE_MOMENT, TRIED_TIMES = ("memory", "timeout"), 5
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


class CantJudge(RuntimeError):
    """No report can be written."""

    status = NO_REPORT


class CantWrite(CantJudge):
    """There is a report, and no room for it."""

    status = UNWRITTEN


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    try:
        return _done(sys.argv[1:] if argv is None else list(argv))
    except CantJudge as error:
        print(f"eval: {error}", file=sys.stderr)
        return error.status


def _done(argv: list[str]) -> int:
    match argv:
        case ["--jail"]:  # the launcher and the runner start often and need little: nothing else is imported for them
            from kbslurm_eval.cage import launcher

            return launcher.launch()
        case ["--runner", folder]:
            from kbslurm_eval.runner import serve

            return serve.serve(folder)
        case ["--profiled", tool, link, *command]:
            from kbslurm_eval.runner import profiled

            return profiled.profiled(tool, link, command)
        case ["--reference-rank", fd]:
            from kbslurm_eval.judge import rank_reference

            return rank_reference.serve_rank(int(fd))
        case ["--reference-library", fd]:
            from kbslurm_eval.judge import compiled_reference

            return compiled_reference.serve(int(fd))
        case ["--keep-awake", shared, bell, judge_pid]:
            from kbslurm_eval.cage import warming_process

            return warming_process.keep_awake(int(shared), int(bell), int(judge_pid))
        case ["--digest"]:
            from kbslurm_eval.shared.program import harness_digest

            print(harness_digest())
            return 0
        case ["--image-digest", image]:
            from pathlib import Path

            from kbslurm_eval.shared.image_digest import UNREADABLE, digest_of

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
        case ["--inputs", manifest]:
            print(tried_inputs(manifest))
            return 0
        case ["--probe"]:
            import json

            print(json.dumps(probe(), sort_keys=True))
            return 0
        case _:
            status = 1
            try:
                status = _judging(argv)
            except CantJudge as error:
                status = error.status
                raise
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 1
                raise
            finally:
                _end_soon(status)
            return status


def _end_soon(status: int) -> None:
    """A problem's code may have left a thread that isn't a daemon, for which Python would wait: whatever is still
    running is given a few seconds."""
    import os
    import threading
    import time

    def end() -> None:
        time.sleep(ENDS_S)
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)

    threading.Thread(target=end, daemon=True).start()


def _judging(argv: Sequence[str]) -> int:
    import argparse
    from pathlib import Path

    parser = argparse.ArgumentParser(prog="eval", description="Judge one manifest and write a sealed report.")
    parser.add_argument("manifest", type=Path, help="manifest.json")
    parser.add_argument("--key", type=Path, required=True, help="file with the attempt's key; removed once read")
    parser.add_argument("--out", type=Path, required=True, help="folder for report.json and heartbeat.json")
    parser.add_argument("--supervisor", type=Path, help="folder for asking the job script for runner containers")
    parser.add_argument("--link", type=Path, help="shared-memory folder that is bound into those containers")
    parser.add_argument("--work", type=Path, help="folder for the links of runners on this machine (default: /dev/shm)")
    parser.add_argument("--min-isolation", type=int, default=0, metavar="N", help="refuse to run below this level")
    parser.add_argument("--probe", action="store_true", help="print the isolation that can be reached here, then exit")
    parser.add_argument("--digest", action="store_true", help="print this program's digest, then exit")
    told = parser.parse_args(argv)
    judge(
        told.manifest,
        told.key,
        told.out,
        supervisor=told.supervisor,
        link=told.link,
        work=told.work,
        least_level=told.min_isolation,
    )
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

    let_threads_sleep()
    from kbslurm_eval.cage import kernel, seen_inside
    from kbslurm_eval.judge import check_mark
    from kbslurm_eval.judge.heartbeat import put_file
    from kbslurm_eval.judge.judge import Judge
    from kbslurm_eval.shared import wire

    told, secret = _read(manifest, key)
    if not told.needs_gpu:
        hide_gpus()
    own = seen_inside.seen_by_judge()
    keep_memory()
    allow_files()
    troubles = kernel.hide_judge()
    signal.signal(signal.SIGTERM, _stop)
    runners, level = _runners_for(told, supervisor, link, work)
    _remove(key)
    if level < 2:
        _remove(manifest)
    out.mkdir(parents=True, exist_ok=True)
    found = Judge(
        told, runners, heartbeat=out / "heartbeat.json", artifacts=out / "artifacts", least_level=least_level, own=own
    )
    found.note([*runners.notes, *troubles, *seen_inside.kernel_notes(own)])
    report = found.judge()
    try:
        put_file(out / "report.json", wire.seal(report, secret))
    except OSError as error:
        raise CantWrite(f"the report can't be written: {error}") from None
    (out / check_mark.NAME).unlink(missing_ok=True)
    return report


def hide_gpus() -> None:
    """On a board without a GPU neither the problem nor a submission uses one that this machine happens to have."""
    import os

    os.environ.update(dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), ""))


def let_threads_sleep() -> None:
    """Threads of libraries that the problem uses wait asleep: after an input was made or an answer checked, they would
    turn for some 30 ms, on cores that the submission's call needs."""
    import os

    for name, value in (("OPENBLAS_THREAD_TIMEOUT", "4"), ("OMP_WAIT_POLICY", "passive"), ("KMP_BLOCKTIME", "0")):
        os.environ.setdefault(name, value)


def keep_memory() -> None:
    """Memory that was freed is used again instead of given back: for each call the judge makes inputs, copies and
    answers of some hundred KiB, and touching that much new memory takes longer than the work that is done in it."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # glibc's, of which older ones take no more than 32 MiB; the second without the first would be worse than neither
    if mallopt is not None and mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1:
        mallopt(M_TRIM_THRESHOLD, 128 << 20)


def allow_files() -> None:
    """As many open files as may be: those on their way through sockets are counted for one user on the whole node, and
    a runner may have 1,024 of them there. With no more than that for itself, the judge could send none."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _stop(number: int, frame: Any) -> None:
    from kbslurm_eval.judge.interrupts import Stopped, note

    raise note(Stopped(143))


def _read(manifest: Path, key: Path) -> tuple[Manifest, bytes]:
    from kbslurm_eval.shared import wire

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


def _runners_for(told: Manifest, supervisor: Path | None, link: Path | None, work: Path | None) -> tuple[Runners, int]:
    from kbslurm_eval.cage.container_runners import ContainerRunners
    from kbslurm_eval.cage.local_runners import LocalRunners
    from kbslurm_eval.cage.runners import CantStart
    from kbslurm_eval.judge.ranks import limits_of, ranks_of

    limits, ranks = limits_of(told), ranks_of(told)
    if supervisor is not None:
        if link is None:
            raise CantJudge("--supervisor needs --link, the folder that its runners share with the judge")
        try:
            return ContainerRunners(supervisor, link, limits, ranks=ranks), 2
        except CantStart as error:
            raise CantJudge(str(error)) from None
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    shm = None if work is None else str(work)
    level, notes = reachable(shm)
    try:
        return LocalRunners(limits, level=level, shm=shm, ranks=ranks, notes=notes, shows_gpus=told.needs_gpu), level
    except OSError as error:
        raise CantJudge(f"no folder for the runners' links: {error}") from None


def reachable(work: str | None = None) -> tuple[int, list[str]]:
    """The highest level at which a runner really starts here, and what kept it from more."""
    import os

    from kbslurm_eval.cage.local_runners import LocalRunners
    from kbslurm_eval.cage.runners import CantStart
    from kbslurm_eval.shared.wire import Limits

    notes: list[str] = []
    highest = int(os.environ.get("KBSLURM_EVAL_LEVEL", "2"))
    for level in range(min(2, highest), -1, -1):
        runners = LocalRunners(Limits(), level=level, shm=work)
        try:
            _tried(runners)
        except CantStart as error:
            notes.append(f"level {level}: {error}")
            continue
        finally:
            runners.close()
        return level, notes
    return 0, notes


def _tried(runners: Any) -> dict[str, Any]:
    """What a runner sees of its cage; CantStart if none starts. What others on this node have taken for the moment says
    nothing of the cage: whoever holds it would choose how well others are isolated."""
    import time

    from kbslurm_eval.cage.runners import CantStart
    from kbslurm_eval.judge.heartbeat import Heartbeat
    from kbslurm_eval.judge.launch import Allowance, Launch
    from kbslurm_eval.judge.replies import Rejected

    for again in range(TRIED_TIMES):
        try:
            launch = Launch(runners, Allowance(left_s=60, whole_s=60), Heartbeat(None))
        except Rejected as error:
            if error.verdict not in OF_THE_MOMENT:
                raise CantStart(error.said) from None
            if again + 1 == TRIED_TIMES:
                raise CantJudge(f"no runner could be tried here: {error.said}") from None
            time.sleep(1.0)
        else:
            break
    launch.close()
    return launch.seen


def mutated(manifest: str) -> dict[str, Any]:
    """What a problem's check makes of spoilt answers. No submission is run; a reference in C++ is compiled first."""
    from pathlib import Path

    from kbslurm_eval.cage.runners import CantStart
    from kbslurm_eval.judge import mutate
    from kbslurm_eval.judge.judge import Judge
    from kbslurm_eval.judge.reference import ProblemTrouble
    from kbslurm_eval.shared import wire

    told = wire.read_manifest(Path(manifest).read_bytes())
    if not told.build.adapter:
        return mutate.of_manifest(told, None)
    runners, _ = _runners_for(told, None, None, None)
    try:
        return mutate.of_manifest(told, Judge(told, runners).compiled_reference())
    except (ProblemTrouble, CantStart) as trouble:
        return {"findings": [], "trouble": str(trouble)}
    finally:
        runners.close()


def tried_inputs(manifest: str) -> str:
    """Whether a problem's inputs can be made and sent: `checked`, `unchecked: …` or `faulty: …`."""
    from pathlib import Path

    from kbslurm_eval.cage import kernel
    from kbslurm_eval.cage.local_runners import LocalRunners
    from kbslurm_eval.judge import try_inputs
    from kbslurm_eval.shared import wire

    told = wire.read_manifest(Path(manifest).read_bytes())
    kernel.hide_judge()
    level, notes = reachable()
    if level < 1:
        return f"unchecked: {'; '.join(notes)[:300] or 'no isolation can be had here'}"
    runners = LocalRunners(told.limits, level=level, notes=notes)  # one process, also where there are several ranks
    try:
        return try_inputs.of_manifest(told, runners)
    finally:
        runners.close()


def probe() -> dict[str, Any]:
    """The isolation that can be reached here: level, means, what is missing, and what a runner found from inside."""
    from kbslurm_eval.cage import kernel, seen_inside
    from kbslurm_eval.cage.local_runners import LocalRunners
    from kbslurm_eval.cage.runners import CantStart
    from kbslurm_eval.shared.wire import Limits

    own = seen_inside.seen_by_judge()
    kernel.hide_judge()
    level, notes = reachable()
    runners = LocalRunners(Limits(), level=level)
    try:
        seen = _tried(runners)
    except CantStart as error:
        return {"level": 0, "means": "none", "notes": [*notes, str(error)], "seen": {}}
    finally:
        runners.close()
    found, missing = seen_inside.level_of(seen, own, container=False)
    notes += [*missing, *seen_inside.kernel_notes(own)]
    return {"level": found, "means": runners.means, "notes": notes, "seen": seen}
