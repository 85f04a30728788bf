"""How a node proves to the service which attempt it speaks for: a MAC under a key derived for that attempt.

Pure and standard library: the service, and the program that it sends to the nodes, both use it.
"""

from __future__ import annotations

import hashlib
import hmac
import re

WHO, MAC, SUM = "X-Kbslurm-Who", "X-Kbslurm-Mac", "X-Kbslurm-Sum"
RESULT_CAP = 24 << 20
BEAT_CAP = 16_384
LAST_NUMBER = 1 << 62
_WHO = re.compile(r"[0-9a-f]{32}|-")


def is_who(text: str) -> bool:
    """Whether this can be a process's own name; `-` is whoever hasn't one yet. Nothing in it could be another part of
    what is signed."""
    return _WHO.fullmatch(text) is not None


def mac(key: bytes, verb: str, place: str, name: str, who: str, digest: str) -> str:
    """The MAC of one call: `digest` is the hexadecimal sha256 of its body, empty without one."""
    derived = hmac.digest(key, f"kbslurm calls {place} {name}".encode(), "sha256")
    return hmac.digest(derived, f"{verb} {place} {name} {who} {digest}".encode(), "sha256").hex()


def key_in(text: str | None) -> bytes | None:
    """The run key in a secret or a file: 32 bytes, as 64 hexadecimal digits. None: it isn't one."""
    found = (text or "").strip()
    return bytes.fromhex(found) if re.fullmatch(r"[0-9a-fA-F]{64}", found) else None


def kit_mac(key: bytes, kit: bytes) -> str:
    """What proves to a node that its program comes from the service."""
    return hmac.digest(key, f"kbslurm kit {digest_of(kit)}".encode(), "sha256").hex()


def digest_of(body: bytes) -> str:
    """The hexadecimal sha256 of a body."""
    return hashlib.sha256(body).hexdigest()
