"""The user that a runner runs as: its own users, user namespaces, no capabilities."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct

from kbslurm_eval.cage.kernel import PR_CAP_AMBIENT, PR_SET_KEEPCAPS, PR_SET_SECUREBITS, CageError, libc_call, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CAGED_UID = 65_533
# Each launch of a judge that is root has a user of its own, whom nobody else is: the kernel counts what a user has on
# the whole node (pipes, descriptors in pollers; without namespaces processes, too), and gives one user's processes to
# the other ones of it.
# They lie above what sssd and FreeIPA give to people (to 2 000 200 000), below systemd's foreign ones (2 147 352 576).
OWN_UIDS, OWN_UIDS_MANY = 2_010_000_000, 130_000_000
INNER_UID = 1_000
DAC_READ_SEARCH = 2


def map_ids(pid: int, uids: str, gids: str) -> bool:
    """Give this process's user namespace its users and groups; whether that was allowed."""
    try:
        with contextlib.suppress(OSError):
            _write(f"/proc/{pid}/setgroups", "deny")
        _write(f"/proc/{pid}/uid_map", uids)
        _write(f"/proc/{pid}/gid_map", gids)
    except OSError:
        return False
    return True


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def drop_user(spec: dict[str, Any], caged: bool, root: bool, *, fenced: bool) -> None:
    """A runner started by root becomes a user without any rights."""
    if not root:
        return
    if caged:
        if os.getuid() == 0:
            os.setresgid(INNER_UID, INNER_UID, INNER_UID)
            os.setresuid(INNER_UID, INNER_UID, INNER_UID)
        return
    reached = all(_open_to_all(path) for path in spec["reached"])
    if not reached and not fenced:
        try:
            drop_capabilities()
        except CageError:
            if spec["level"] > 0:  # the next level down promises nothing
                raise
        return
    if not reached:
        prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(spec["uid"], spec["uid"], spec["uid"])
    os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    if not reached:  # a Python below root's own folder: it may be reached, within the fence
        kept = 1 << DAC_READ_SEARCH
        libc_call("capset", struct.pack("<II", 0x20080522, 0), struct.pack("<6I", kept, kept, kept, 0, 0, 0))
        libc_call("prctl", PR_CAP_AMBIENT, *(ctypes.c_ulong(n) for n in (2, DAC_READ_SEARCH, 0, 0)))


def drop_capabilities() -> None:
    """Drop all capabilities, for this process and anything it executes. CageError where only this process has lost
    them."""
    refused = None
    try:
        prctl(PR_SET_SECUREBITS, 0x2F)  # first, while they may still be set: no exec brings a capability back
    except CageError as error:  # older gVisors
        refused = CageError(error.errno, "this kernel doesn't keep root's capabilities away for good (securebits)")
    libc_call("capset", struct.pack("<II", 0x20080522, 0), bytes(24))
    if refused is not None:
        raise refused


def _open_to_all(path: str) -> bool:
    """Whether any user can reach this file or folder."""
    if not os.stat(path).st_mode & stat.S_IROTH:
        return False
    while path != (above := os.path.dirname(path)):
        path = above
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
    return True
