"""A stand-in for `ncu`, as its documentation and its `--help` describe it: what it takes, what it refuses and in which
words, and when it writes a report. What it measures is made up: the tables lie beside it.

It profiles a process only if that calls cuProfilerStart, which the stand-in for the driver tells it by TCP on loopback,
as the real one speaks with its target.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
YES_NO = ("yes", "no", "on", "off", "true", "false", "1", "0")
# With an argument: what it may be, None for anything. Without one: an empty tuple.
OPTIONS: dict[str, tuple[str, ...] | None] = {
    "--target-processes": ("application-only", "all"), "--profile-from-start": YES_NO, "--set": None, "--section": None,
    "--import-source": YES_NO, "--launch-count": None, "--launch-skip": None, "--log-file": None, "--export": None,
    "--clock-control": ("base", "none", "reset"), "--cache-control": ("all", "none"), "--import": None,
    "--page": ("details", "raw", "source", "session"), "--print-details": ("header", "body", "all"),
    "--print-source": ("sass", "ptx", "cuda", "cuda,sass"), "--print-units": ("auto", "base"),
    "--source-folders": None, "--help": (),
    "--force-overwrite": (), "--csv": (), "--nvtx": (), "--quiet": (), "--metrics": None, "--kernel-name": None,
}  # fmt: skip
SETS = ("basic", "detailed", "full", "nvlink", "pmsampling", "roofline")


def main(argv: list[str]) -> int:
    asked: dict[str, str] = {}
    state = set(json.loads((HERE / "ncu.json").read_text()))
    while argv and argv[0].startswith("-"):
        name, equals, given = argv.pop(0).partition("=")
        if name not in OPTIONS or (name == "--import-source" and "old" in state):
            return refused(f"unrecognised option '{name}'. Use --help for further details.")
        allowed = OPTIONS[name]
        if allowed == ():
            asked[name] = ""
            continue
        value = given if equals else argv.pop(0) if argv else ""
        count = name in ("--launch-count", "--launch-skip")
        if (allowed and value not in allowed) or not value or (count and not value.isdigit()):
            return refused(f"the argument ('{value}') for option '{name}' is invalid. Use --help for further details.")
        asked[name] = value
    if "--help" in asked:
        print("\n".join(f"  {name}" for name in OPTIONS if name != "--source-folders" or "old" not in state))
        return 0
    if asked.get("--set", "full") not in SETS:
        return refused(f"Failed to find set {asked['--set']}")
    if "--import" in asked:
        return imported(asked, argv)
    return profiled(asked, argv, state)


def refused(text: str) -> int:
    print(f"==ERROR== {text}")
    return 1


def imported(asked: dict[str, str], argv: list[str]) -> int:
    report = Path(asked["--import"])
    if argv or not report.is_file():
        return refused(f"Failed to open file {report}")
    launches = json.loads(report.read_text().removeprefix("NVR\n"))["launches"]
    page, csv = asked.get("--page", "details"), "--csv" in asked
    first = int(asked.get("--launch-skip", "0"))
    chosen = launches[first : first + int(asked.get("--launch-count", "1000"))]
    if page == "source":
        if (sources := json.loads(report.read_text().removeprefix("NVR\n")).get("sources")) and "cuda" in asked.get(
            "--print-source", ""
        ):
            print(shown(sources))
            return 0
        lines = [f'"{n}","{asked.get("--print-source", "sass")}","LDG.E R0, [R2.64]","{one}"' for n, one in chosen]
        print("\n".join(['"#","View","Source","Kernel"', *lines]))
    elif csv:
        print((HERE / f"ncu-2025-{page}.csv").read_text(), end="")
    else:
        print("\n".join(f"  {one}\n    Section: GPU Speed Of Light Throughput" for _, one in chosen))
    return 0


def shown(sources: dict[str, str]) -> str:
    """The source view: a block for each file, the author's lines with machine code between them."""
    found = ['"Kernel Name","gemm_kernel"']
    for path, text in sources.items():
        found += [f'"File Path","{path}"', '"Line No","Address","Source","Warp Stall Sampling (All Samples)"']
        for number, line in enumerate(text.splitlines(), 1):
            plain = line.replace('"', '""')
            samples = 90 if "return" in line else 0
            found += [f'"{number}","","{plain}","{samples}"', f'"","0x{16 * number:x}","IMAD R0, R1, R2","{samples}"']
    return "\n".join(found)


def profiled(asked: dict[str, str], argv: list[str], state: set[str]) -> int:
    if not argv:
        return refused("No application was specified")
    report = Path(asked["--export"] + ".ncu-rep")
    if report.exists() and "--force-overwrite" not in asked:
        return refused(f"Report file {report} already exists. Use -f to overwrite")
    log = Path(asked.get("--log-file", "/dev/stdout"))
    starts: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as ear:
        threading.Thread(target=listen, args=(ear, starts), daemon=True).start()
        env = {**os.environ, "STANDIN_NCU_PORT": str(ear.getsockname()[1])}
        status = subprocess.run(argv, env=env, check=False).returncode
    said = ["==PROF== Connected to process 7 (/usr/bin/python3)"]
    seen = b"+" in starts or asked.get("--profile-from-start", "yes") in ("yes", "on", "true", "1")
    if "refused" in state and seen:
        said.append(
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters "
            "on the target device 0. For instructions on enabling permissions and to get more information see "
            "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
        )
        seen = False
    if seen:
        kernels = ["gemm_kernel", "copy_kernel", "gemm_kernel"][: int(asked.get("--launch-count", "1000"))]
        told: dict[str, Any] = {
            "launches": list(enumerate(kernels)),
            "set": asked.get("--set"),
            "source": asked.get("--import-source"),
        }
        folder = Path(asked["--source-folders"]) if "--source-folders" in asked else None
        # it looks for the files that the line table names, in all folders below
        named = sorted(folder.rglob("*.c*")) if folder else []
        told["sources"] = {str(path): path.read_text() for path in named if path.suffix in (".cu", ".cpp")}
        size = next((int(word.removeprefix("size ")) for word in state if word.startswith("size ")), 0)
        report.write_text("NVR\n" + json.dumps(told) + " " * size)
        said.append(f"==PROF== Report: {report}")
    else:
        said.append("==WARNING== No kernels were profiled.")
    log.write_text("\n".join(said) + "\n")
    return status


def listen(ear: socket.socket, starts: list[bytes]) -> None:
    while True:
        try:
            one, _ = ear.accept()
        except OSError:
            return
        with one:
            starts.append(one.recv(1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
