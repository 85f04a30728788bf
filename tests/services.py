"""What a test needs from the machine: there, or said to be missing in one line."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def missing(service: str, why: str) -> NoReturn:
    """Skip on a laptop, fail in CI, where every service has to be there."""
    sentence = f"{service} is missing: {why}"
    if in_ci():
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)


def command(name: str) -> str:
    """The path of a command that the test needs."""
    return shutil.which(name) or missing(name, "no such command on PATH")
