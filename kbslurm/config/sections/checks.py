"""Checks of values that several sections share."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kbslurm.domain import contest
from kbslurm.errors import Invalid


def slots_by_gpu(slots: Mapping[str, int]) -> Mapping[str, int]:
    """How many runs at the same time, by GPU type."""
    for gpu, free in slots.items():
        contest.gpu_name(gpu)
        if free < 1:
            raise Invalid(f"{gpu} has {free} slots", hint="Write at least 1, or leave it out.")
    return dict(slots)


def listen_address(text: str) -> str:
    """HOST:PORT."""
    host, sep, port = text.rpartition(":")
    if text and not (sep and host and port.isdecimal() and int(port) < 65536):
        raise Invalid(f"{text!r} isn't a valid address to listen on", hint='Write "127.0.0.1:8000".')
    return text


def web_address(text: str) -> str:
    """An http or https URL without a trailing slash."""
    if text and not re.match(r"https?://[^/]+", text):
        raise Invalid(f"{text!r} isn't a valid page address", hint='Write "https://kernels.example.edu".')
    return text.rstrip("/")
