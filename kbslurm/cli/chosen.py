"""The options given before the command's name, and in what form its answer is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Form = Literal["json", "csv", "name"]


class _Chosen:
    config: Path | None = None
    context: str | None = None
    form: Form | None = None
    lists: str = ""  # `Command.lists` of the one that runs


chosen = _Chosen()
