"""In the runner's cage: a profiler around the runner, and its tables when the runner has ended.

    --profiled ncu|rocprof LINK COMMAND…

Whatever the profiler writes goes to a folder of the cage first, and is copied into the link's folder at the end, each
file only if it isn't too large. Where the profiler can't start, the runner starts without it, so that the judge gets
its answers and reads here why there is no profile.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from kbslurm_eval.build import built_files
from kbslurm_eval.shared.profile_files import FILE_CAP, LEFT, LOG

MOST_KERNELS = 20
CONVERT_S = 60.0
_ROCM_REGIONS = "--selected-regions"


def profiled(tool: str, link: str, command: Sequence[str]) -> int:
    """Run the command under the profiler; its exit status."""
    if tool not in LEFT:
        print(f"kbslurm: there is no profiler {tool!r}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="profile-", ignore_cleanup_errors=True) as made:
        log = os.path.join(made, LOG)
        program = found_program("rocprofv3" if tool == "rocprof" else tool)
        if program is None:
            _noted(log, f"kbslurm: {'rocprofv3' if tool == 'rocprof' else tool} isn't in this image")
            _copied(log, link, LOG)
            return subprocess.run(list(command), check=False).returncode
        if tool == "ncu":
            status = subprocess.run([*ncu(program, made, built_files.shown(link)), *command], check=False).returncode
            _ncu_tables(program, made)
        else:
            with open(log, "wb") as said:
                argv = [*rocprof(program, made), "--", *command]
                status = subprocess.run(argv, stderr=said, check=False).returncode
            _rocprof_files(made)
        for name in LEFT[tool]:
            _copied(os.path.join(made, name), link, name)
        return status


def ncu(program: str, made: str, built: str = "") -> list[str]:
    """Nsight Compute: only kernels between cuProfilerStart and cuProfilerStop, up to a number, with every section and
    the source lines; it leaves the clocks alone, since the site sets them. `built`: where the builder's files are,
    among them the sources, which were compiled under another path."""
    folders = ["--source-folders", built] if os.path.isdir(built) and _knows(program, "--source-folders") else []
    return [
        *(program, "--target-processes", "all", "--profile-from-start", "off", "--set", "full"),
        *("--import-source", "yes", "--launch-count", str(MOST_KERNELS), "--clock-control", "none"),
        *("--log-file", os.path.join(made, LOG), "--force-overwrite", "--export", os.path.join(made, "profile")),
        *folders,
    ]


def rocprof(program: str, made: str) -> list[str]:
    """rocprofv3: each kernel's and copy's time, as tables and as a trace for Perfetto; where it can, only of the calls
    that are profiled."""
    regions = [_ROCM_REGIONS] if _knows(program, _ROCM_REGIONS) else []
    return [
        *(program, "--kernel-trace", "--memory-copy-trace", "--hip-runtime-trace", "--stats", *regions),
        *("--output-format", "csv", "pftrace", "--output-directory", made, "--output-file", "profile"),
    ]


def found_program(name: str) -> str | None:
    """A profiler's path: on PATH, in the toolkit's folder, or where its own packages are installed."""
    homes = [os.environ.get(n, "") for n in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH")] + ["/usr/local/cuda", "/opt/rocm"]
    more = [os.path.join(home, "bin") for home in homes if home]
    more += sorted(glob.glob("/opt/nvidia/nsight-compute/*"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *more]))


def _ncu_tables(program: str, made: str) -> None:
    report = os.path.join(made, "profile.ncu-rep")
    if not os.path.isfile(report):
        return
    shown = [program, "--import", report]
    details = [*shown, "--page", "details", "--print-details", "all"]
    _written(details, made, "profile.details.txt")
    _written([*details, "--csv"], made, "profile.details.csv")
    _written([*shown, "--page", "raw", "--csv"], made, "profile.raw.csv")
    # of the longest launch only: the source view of all of them would be larger than anybody reads
    which = _longest(os.path.join(made, "profile.raw.csv"))
    one = [*shown, "--page", "source", "--csv", "--launch-skip", str(which), "--launch-count", "1"]
    if not _written([*one, "--print-source", "cuda,sass"], made, "profile.source.csv"):
        _written([*one, "--print-source", "sass"], made, "profile.source.csv")


def _longest(table: str) -> int:
    """Which launch of the report took longest; the first where that can't be read."""
    with contextlib.suppress(OSError, ValueError, csv.Error), open(table, encoding="utf-8", errors="replace") as file:
        rows = list(csv.reader(line for line in file if not line.startswith("==")))
        at = rows[0].index("gpu__time_duration.sum")
        took = [float(row[at].replace(",", "")) for row in rows[2:]]
        return took.index(max(took))
    return 0


def _rocprof_files(made: str) -> None:
    """Its files by our names: it may put a folder for the node or the process in between, or make several."""
    for name in LEFT["rocprof"]:
        ending = name.removeprefix("profile")
        found = glob.glob(os.path.join(glob.escape(made), "**", f"*{ending}"), recursive=True)
        largest = max(found, key=os.path.getsize, default=None)
        if largest is not None and largest != os.path.join(made, name):
            os.replace(largest, os.path.join(made, name))


def _knows(program: str, option: str) -> bool:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run([program, "--help"], capture_output=True, timeout=CONVERT_S, check=False).stdout
        return option.encode() in said
    return False


def _written(argv: Sequence[str], made: str, name: str) -> bool:
    """A program's output as a file; none if it failed."""
    path = os.path.join(made, name)
    with open(path, "wb") as out, contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(list(argv), stdout=out, stderr=subprocess.DEVNULL, timeout=CONVERT_S, check=False)
        if done.returncode == 0 and os.path.getsize(path):
            return True
    os.unlink(path)
    return False


def _noted(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def _copied(path: str, link: str, name: str) -> None:
    """Into the link's folder, where a place was made for it or may be made."""
    with contextlib.suppress(OSError):
        size = os.path.getsize(path)
        if size > FILE_CAP:
            with open(os.path.join(link, LOG), "ab") as file:
                file.write(f"kbslurm: {name} has {size} bytes, over the limit of {FILE_CAP}\n".encode())
            return
        with open(path, "rb") as source, open(os.path.join(link, name), "ab") as to:
            shutil.copyfileobj(source, to)
