"""The pages' colours for pictures: from the stylesheet, so that there is one place for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from kbslurm.api.pages.rendering import STYLE

_COLOUR = re.compile(r"--([\w-]+): (#[0-9a-f]{6})")


@cache
def light() -> Mapping[str, str]:
    """Each colour by its name, as on paper. The stylesheet has those of the dark theme after them."""
    found: dict[str, str] = {}
    for name, value in _COLOUR.findall(str(STYLE)):
        found.setdefault(name, value)
    return found
