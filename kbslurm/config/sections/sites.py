"""[sites]: which sites are used, and where their files are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SitesSection:
    """Which sites' files are used."""

    use: tuple[str, ...] = field(
        default=(),
        metadata={"doc": "Names of site-configs/*.toml, or paths of such files; earlier ones are preferred."},
    )
    dir: Path | None = field(default=None, metadata={"doc": "Where they are; default: site-configs/ beside this file."})
