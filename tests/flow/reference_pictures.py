"""Pictures that pages are compared with, in `tests/references`.

`KBSLURM_TEST_REFERENCES=write` writes them anew: look at what changed before you commit it. A browser of another
version draws the edges of letters a little differently, so both are reduced to a quarter before they are compared.
"""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageChops

FOLDER = Path(__file__).parents[1] / "references"
REDUCED = 4
UNLIKE = 24  # of 255: what a reduced pixel may differ by
SHARE = 0.004  # of the reduced pixels may differ by more: about a line of text on a desk's screen
COLOURS = 48


def differs(name: str, png: bytes, artifacts: Path) -> str:
    """What is wrong with this picture, or nothing. The picture and what differs are kept among the artifacts."""
    file = FOLDER / f"{name}.png"
    found = Image.open(BytesIO(png)).convert("RGB")
    if os.environ.get("KBSLURM_TEST_REFERENCES") == "write":
        FOLDER.mkdir(exist_ok=True)
        _small(found).save(file, optimize=True)
    if not file.is_file():
        return f"{name}: there is no reference. Run this test with KBSLURM_TEST_REFERENCES=write, and look at it."
    wanted = Image.open(file).convert("RGB")
    artifacts.mkdir(parents=True, exist_ok=True)
    found.save(artifacts / f"{name}.png")
    if found.size != wanted.size:
        return f"{name}: {found.size[0]} × {found.size[1]} pixels, not {wanted.size[0]} × {wanted.size[1]}"
    apart = ImageChops.difference(_small(found).convert("RGB").reduce(REDUCED), wanted.reduce(REDUCED))
    most = max((band.point(lambda value: 255 if value > UNLIKE else 0) for band in apart.split()), key=_lit)
    share = _lit(most) / (most.width * most.height)
    if share <= SHARE:
        return ""
    apart.point(lambda value: min(255, 4 * value)).resize(found.size).save(artifacts / f"{name}-differs.png")
    return f"{name}: {100 * share:.2f} % of it differs, over {100 * SHARE} %; see {artifacts / name}-differs.png"


def _small(picture: Image.Image) -> Image.Image:
    return picture.quantize(COLOURS, dither=Image.Dither.NONE)


def _lit(mask: Image.Image) -> int:
    return mask.histogram()[255]
