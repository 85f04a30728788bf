"""Reads a container's result without executing any of it (law 6).

Modal's client unpickles results, and a pickle runs what its maker wants. We read a result's raw bytes instead and
accept only two formats: a pickle of one bytes object, parsed opcode by opcode, and a CBOR byte string. Anything else
isn't a result. Nothing here imports pickle.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbslurm.backends.supervisor_exit import blamed
from kbslurm.domain.run import Ending
from kbslurm_eval.shared.wire import ARTIFACT_CAP, ARTIFACTS_CAP, ARTIFACTS_TOTAL, REPORT_CAP

# A sealed report quotes the report's text, so that every quotation mark in it takes two bytes; the envelope quotes it
# once more.
SEALED_CAP = 2 * REPORT_CAP
RESULT_CAP = 2 * SEALED_CAP + 4 * ARTIFACTS_TOTAL // 3 + (1 << 20)
PICKLE, CBOR = "pickle", "cbor"
ENVELOPE_VERSION = 2
# The endings that the container may report. Others, like a node failure, are reported by the platform.
SAYABLE = {
    ending.value: ending
    for ending in (Ending.REPORTED, Ending.TIMEOUT, Ending.NO_REPORT, Ending.BAD_REPORT, Ending.IMAGE, Ending.CANCELLED)
}
CHECKING = "checking"
# The reasons, by code word: text from a container is never shown, since it could contain a hidden case (law 9).
WHYS = {
    "": "",
    "version": "the deployed app has a different version: run kbslurm modal deploy",
    "harness": "the deployed app has a different version of the harness: run kbslurm modal deploy",
    "late": "no GPU became free in time, so it wasn't started",
    "start": "the harness couldn't be started; see Modal's logs",
    "time": "it hit its time limit",
    CHECKING: "the judge ended while it was looking at an answer",
    "report": "its report isn't a regular file of a valid size",
    "large": "its report is larger than what Modal takes out of a container without a network",
}
EXIT_CODES = range(-64, 256)

_PROTO, _FRAME, _MEMOIZE, _BINPUT, _LONG_BINPUT, _STOP = 0x80, 0x95, 0x94, 0x71, 0x72, 0x2E
_BYTES_SIZES = {0x43: 1, 0x42: 4, 0x8E: 8}  # SHORT_BINBYTES, BINBYTES, BINBYTES8
_SKIPPED = {_FRAME: 8, _MEMOIZE: 0, _BINPUT: 1, _LONG_BINPUT: 4}


class NoResult(ValueError):
    """The result isn't what our function returns."""


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """What our function returns: how it ended, and the sealed report if there is one, never inspected here."""

    ending: Ending
    exit_code: int | None = None
    reason: str = ""
    report: bytes | None = None
    artifacts: Mapping[str, bytes] = field(default_factory=dict)


def envelope_of(data: bytes, shape: str) -> Envelope:
    """The envelope in a result's raw bytes, or NoResult. Nothing in it is trusted: the report's seal is checked
    later."""
    if len(data) > RESULT_CAP:
        raise NoResult(f"a result of {len(data)} bytes is over the limit of {RESULT_CAP}")
    return _read(_decompressed(bytes_of(data, shape)))


def _decompressed(data: bytes) -> bytes:
    """No more than an envelope can have, whatever its maker wants."""
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(data, RESULT_CAP)
    except zlib.error:
        raise NoResult("a result that isn't compressed") from None
    if not reader.eof or reader.unused_data:
        raise NoResult(f"a result that was cut short, lengthened, or is over the limit of {RESULT_CAP} bytes")
    return text


def bytes_of(data: bytes, shape: str) -> bytes:
    """The single bytes object encoded in these bytes, or NoResult. Nothing is ever executed."""
    match shape:
        case "pickle":
            return _pickled_bytes(data)
        case "cbor":
            return _cbor_bytes(data)
        case _:
            raise NoResult(f"a result in an unknown format: {shape}")


def _pickled_bytes(data: bytes) -> bytes:
    """Accepts only opcodes that push one bytes object or have no effect."""
    at, found = 0, None
    while at < len(data):
        code, at = data[at], at + 1
        if code in _BYTES_SIZES and found is None:
            found, at = _sized(data, at, _BYTES_SIZES[code], "little")
        elif code == _PROTO:
            if at != 1 or at >= len(data) or data[at] > 5:
                raise NoResult("a pickle with an unknown protocol")
            at += 1
        elif code in _SKIPPED:
            at += _SKIPPED[code]
        elif code == _STOP:
            if found is None or at != len(data):
                raise NoResult("a pickle that isn't one bytes object")
            return found
        else:
            raise NoResult(f"a pickle with opcode 0x{code:02x}, which one bytes object doesn't need")
    raise NoResult("a pickle without its end")


def _cbor_bytes(data: bytes) -> bytes:
    """A byte string of definite length, and nothing after it."""
    if not data or data[0] >> 5 != 2:
        raise NoResult("a CBOR result that isn't one byte string")
    more = data[0] & 31
    if more < 24:
        found, at = data[1 : 1 + more], 1 + more
        if len(found) != more:
            raise NoResult("a result that was cut short")
    elif more in (24, 25, 26, 27):
        found, at = _sized(data, 1, 1 << (more - 24), "big")
    else:
        raise NoResult("a CBOR result in pieces")
    if at != len(data):
        raise NoResult("a CBOR result with something behind it")
    return found


def _sized(data: bytes, at: int, width: int, order: Any) -> tuple[bytes, int]:
    size = int.from_bytes(data[at : at + width], order)
    start = at + width
    if size > len(data) - start:
        raise NoResult("a result that was cut short")
    return data[start : start + size], start + size


def _read(text: bytes) -> Envelope:
    try:
        told = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        raise NoResult("a result that isn't JSON") from None
    want = {"version", "ending", "why", "exit_code", "report", "artifacts"}
    if not isinstance(told, dict) or set(told) != want or told["version"] != ENVELOPE_VERSION:
        raise NoResult("a result that isn't this version's envelope")
    code, report = told["exit_code"], told["report"]
    known = isinstance(told["ending"], str) and told["ending"] in SAYABLE
    known = known and isinstance(told["why"], str) and told["why"] in WHYS
    if not known or not (code is None or (type(code) is int and code in EXIT_CODES)):
        raise NoResult("an envelope with an invalid field")
    if not (report is None or isinstance(report, str)):
        raise NoResult("an envelope with an invalid field")
    ending = blamed(SAYABLE[told["ending"]], code, checking=told["why"] == CHECKING)
    sealed = None if report is None else report.encode("utf-8", errors="replace")
    if sealed is not None and len(sealed) > SEALED_CAP:
        ending, sealed = Ending.BAD_REPORT, None
    if (sealed is None) is (ending is Ending.REPORTED):
        raise NoResult("an envelope whose ending and report don't fit")
    return Envelope(
        ending=ending,
        exit_code=code,
        reason=WHYS[told["why"]],
        report=sealed,
        artifacts=_artifacts(told["artifacts"]),
    )


def _artifacts(told: Any) -> dict[str, bytes]:
    """A profile's files. Invalid ones are left out; the report names its files with their digests."""
    found: dict[str, bytes] = {}
    for name, text in list(told.items())[:ARTIFACTS_CAP] if isinstance(told, dict) else ():
        if not isinstance(text, str) or len(text) > 4 * ARTIFACT_CAP // 3 + 4:
            continue
        try:
            data = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            continue
        if 0 < len(data) <= ARTIFACT_CAP and sum(map(len, found.values())) + len(data) <= ARTIFACTS_TOTAL:
            found[name] = data
    return found
