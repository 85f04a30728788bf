"""The fields that cross the trust line, by version. Whoever changes one raises the version: then a harness of another
release is told so, instead of sending reports that nobody can read.

After a change that is meant: raise WIRE_VERSION, then KBSLURM_TEST_GOLDEN=write python -m pytest
tests/golden/test_wire.py.
"""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from pathlib import Path
from typing import Any

from kbslurm_eval.shared import wire

FILE = Path(__file__).with_name("data") / "wire.json"


def _fields(kind: Any, found: dict[str, dict[str, str]]) -> None:
    """This class's fields and their types, and those of all classes within them."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in found:
            hints = typing.get_type_hints(kind)
            found[kind.__name__] = {one.name: str(one.type) for one in dataclasses.fields(kind)}
            for one in dataclasses.fields(kind):
                _fields(hints[one.name], found)
        return
    for inner in typing.get_args(kind):
        _fields(inner, found)


def test_the_fields_of_a_version_stay_as_they_are() -> None:
    found: dict[str, dict[str, str]] = {}
    for kind in (wire.Manifest, wire.Report):
        _fields(kind, found)
    assert {"Limits", "LaunchSamples", "CallTimes"} <= found.keys()
    now: dict[str, Any] = {"version": wire.WIRE_VERSION, "fields": found}
    known: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {"version": 0, "fields": {}}
    if os.environ.get("KBSLURM_TEST_GOLDEN") == "write":
        assert now == known or now["version"] > known["version"], "other fields need another version"
        FILE.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        known = now
    assert now == known, "raise WIRE_VERSION and write this file anew"
