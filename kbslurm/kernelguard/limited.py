"""A program: runs the module that it is given, within limits that the module's own work can't exceed.

What the scanner reads was written by somebody who may want it to hang, or to eat the machine's memory. It is run by its
path and imports nothing of ours. On systems that know no such limit the caller's patience is the only one.
"""

from __future__ import annotations

import os
import runpy
import sys
from contextlib import suppress

MEMORY_BYTES, OUTPUT_BYTES = 2 << 30, 8 << 20
NICE = 10


def limit(cpu_s: int) -> None:
    """Hold this process to these limits from now on."""
    with suppress(OSError, AttributeError):
        os.nice(NICE)  # others' work comes first
    with suppress(ImportError):
        import resource

        for what, most in (("AS", MEMORY_BYTES), ("FSIZE", OUTPUT_BYTES), ("CPU", cpu_s), ("CORE", 0)):
            with suppress(OSError, ValueError):
                resource.setrlimit(getattr(resource, f"RLIMIT_{what}"), (most, most))


if __name__ == "__main__":
    _, _cpu_s, _module, *_rest = sys.argv
    limit(int(_cpu_s))
    sys.argv = [_module, *_rest]
    runpy.run_module(_module, run_name="__main__", alter_sys=True)
