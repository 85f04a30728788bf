"""[sites]: the sites in use, and the folder of their files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SitesSection:
    """The sites in use."""

    use: tuple[str, ...] = field(
        default=(),
        metadata={"doc": "Names of files in site-configs/, or paths of site files; earlier ones are preferred."},
    )
    dir: Path | None = field(default=None, metadata={"doc": "Their folder; default: site-configs/ next to this file."})
