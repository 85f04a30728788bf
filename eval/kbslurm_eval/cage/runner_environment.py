"""What of this machine a runner needs: the interpreter's files, compilers, environment variables."""

from __future__ import annotations

import os
import sys

from kbslurm_eval.cage import places
from kbslurm_eval.shared.program import eval_folder


def places_for_all() -> list[str]:
    """Where a runner without its own file system could leave something for the next one."""
    found = {
        *places.WRITABLE_BY_ALL,
        os.path.expanduser("~"),
        eval_folder(),
        *interpreter_paths(),
        *filter(os.path.isdir, sys.path),
    }
    return sorted(found)


def interpreter_paths() -> list[str]:
    """The paths that a Python needs to start and to import what is installed: its prefixes, and its links' targets."""
    executable = sys.executable
    found = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)}
    found |= {sys.prefix, sys.base_prefix}
    step = executable
    for _ in range(16):
        found.add(os.path.dirname(step) if not step.startswith(tuple(f"{p}/" for p in found)) else sys.prefix)
        if not os.path.islink(step):
            break
        step = os.path.normpath(os.path.join(os.path.dirname(step), os.readlink(step)))
    system = [
        p
        for p in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/opt/nvidia", "/opt/rocm", "/nix/store")
        if os.path.lexists(p)
    ]
    wanted = sorted(found - {"/"}) + system
    kept: list[str] = []
    for path in sorted(set(wanted), key=lambda p: (p.count("/"), p)):
        if not any(path == k or (path.startswith(f"{k}/") and not os.path.islink(k)) for k in kept):
            kept.append(path)
    return kept


def toolkit_paths() -> list[str]:
    """Where device compilers are, according to the environment."""
    found = {os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH")}
    under = ("/usr/", "/opt/rocm/")
    return sorted(p for p in found if p.startswith("/") and os.path.isdir(p) and not f"{p}/".startswith(under))


def runner_environment(home: str) -> dict[str, str]:
    """The variables that a local runner starts with."""
    kept = {name: os.environ[name] for name in places.KEPT_ENV if name in os.environ}
    path = f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    return {**kept, "PATH": path, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", "USER": "runner"}
