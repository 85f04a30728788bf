"""Fonts that a browser shows pages in, whatever the machine has: DejaVu, which matplotlib brings."""

from __future__ import annotations

from pathlib import Path

from kbslurm.api.pages.pictures import fonts

_CONFIG = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
<dir>{fonts}</dir>
<cachedir>{cache}</cachedir>
{aliases}
<match target="font">
<edit name="antialias" mode="assign"><bool>true</bool></edit>
<edit name="hinting" mode="assign"><bool>false</bool></edit>
<edit name="hintstyle" mode="assign"><const>hintnone</const></edit>
<edit name="rgba" mode="assign"><const>none</const></edit>
</match>
</fontconfig>
"""
_ALIAS = "<alias binding='same'><family>{name}</family><prefer><family>{font}</family></prefer></alias>"
_NAMES = {
    **dict.fromkeys(("sans-serif", "system-ui", "serif", "Arial", "Helvetica"), "DejaVu Sans"),
    **dict.fromkeys(("monospace", "ui-monospace"), "DejaVu Sans Mono"),
}


def environment(place: Path) -> dict[str, str]:
    """For the browser's environment. The configuration is written to this folder."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "fonts.conf"
    aliases = "\n".join(_ALIAS.format(name=name, font=font) for name, font in _NAMES.items())
    file.write_text(_CONFIG.format(fonts=fonts.folder(), cache=place / "cache", aliases=aliases))
    return {"FONTCONFIG_FILE": str(file)}
