"""The options given before the command's name."""

from __future__ import annotations

from pathlib import Path


class _Chosen:
    config: Path | None = None
    context: str | None = None


chosen = _Chosen()
