"""A script in a submission's place: what the manifest, the report and the runner call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCRIPT = "script"  # of a manifest's `config`: run the source once instead of judging it; of a report's `host`: its end
EXIT_STATUS = "exit_status"
KILLED_FROM = 128  # as a shell counts: this and the signal's number


def is_script(config: Mapping[str, Any]) -> bool:
    """Whether this manifest's source is run as a program instead of being judged."""
    return config.get(SCRIPT) is True


def exit_status(host: Mapping[str, Any]) -> int | None:
    """How the script ended, by what its report says of it; None if it was stopped, or never ran."""
    told = host.get(SCRIPT)
    found = told.get(EXIT_STATUS) if isinstance(told, Mapping) else None
    return found if type(found) is int and 0 <= found <= 255 else None
