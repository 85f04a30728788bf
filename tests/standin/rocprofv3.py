"""A stand-in for `rocprofv3`, as its documentation and its own arguments describe it: what it takes, what it refuses,
and how it names what it writes. The tables lie beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FORMATS = ("csv", "json", "pftrace", "otf2", "rocpd")


def main(argv: list[str]) -> int:
    state = set(json.loads((HERE / "rocprof.json").read_text()))
    parser = argparse.ArgumentParser(prog="rocprofv3", allow_abbrev=False)
    for name in ("--kernel-trace", "--memory-copy-trace", "--hip-trace", "--hip-runtime-trace", "--stats"):
        parser.add_argument(name, nargs="?", const=True)
    if "old" not in state:
        parser.add_argument("--selected-regions", nargs="?", const=True)
    parser.add_argument("-f", "--output-format", nargs="+", choices=FORMATS, type=str.lower)
    parser.add_argument("-d", "--output-directory")
    parser.add_argument("-o", "--output-file")
    if "--" not in argv:
        parser.parse_args(argv)
        print("Fatal error: No application was specified", file=sys.stderr)
        return 1
    asked, command = parser.parse_args(argv[: argv.index("--")]), argv[argv.index("--") + 1 :]
    if asked.stats and not asked.kernel_trace:
        print("Fatal error: --stats has to be combined with a tracing option", file=sys.stderr)
        return 1
    status = subprocess.run(command, env={**os.environ, "STANDIN_ROCPROF": "1"}, check=False).returncode
    folder = Path(asked.output_directory) / ("node7" if "nested" in state else "")
    folder.mkdir(parents=True, exist_ok=True)
    if "csv" in asked.output_format:
        for kind in ("kernel_trace", "kernel_stats"):
            shutil.copy(HERE / f"rocprofv3-7_{kind}.csv", folder / f"{asked.output_file}_{kind}.csv")
    if "pftrace" in asked.output_format:
        (folder / f"{asked.output_file}_results.pftrace").write_bytes(b"\x0a\x05trace")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
