"""What a command said on a terminal, as a picture that needs no font of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from kbslurm.api.pages.rendering import static_file

COLUMNS = 104
_TOKEN = re.compile(r"--([\w-]+): (#[0-9a-f]{6})")
# No font from elsewhere, no window around it: a picture in a page runs nothing and loads nothing.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="BACKGROUND"/>
<g transform="translate({terminal_x}, 24)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""  # noqa: E501


def said(words: list[str], cwd: Path, env: dict[str, str]) -> str:
    """What it printed on a terminal of that width, with its colours."""
    told = {**os.environ, **env, "TERM": "xterm-256color"}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    with subprocess.Popen(
        words, cwd=cwd, env=told, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL
    ) as process:
        os.close(theirs)
        output = b""
        with suppress(OSError):  # a terminal that nobody holds any more can't be read
            while read := os.read(ours, 65_536):
                output += read
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{words[0]} {words[1]} ended with {process.returncode}. Run it by hand to see why.")
    return output.decode().replace("\r\n", "\n")


def as_svg(command: str, output: str, *, is_dark: bool) -> str:
    """The command as it was typed, and what it said."""
    colours = _colours(is_dark=is_dark)
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    console.print(Text.from_ansi(output.rstrip()))
    picture = console.export_svg(
        title="", theme=_theme(colours), code_format=SVG.replace("BACKGROUND", colours["raised"]), unique_id="kb"
    )
    return "\n".join(line.rstrip() for line in picture.splitlines()) + "\n"


def _colours(*, is_dark: bool) -> dict[str, str]:
    """The pages' colours: those of the dark theme come last."""
    found: dict[str, str] = {}
    for name, value in _TOKEN.findall(static_file("style.css").decode()):
        if is_dark:
            found[name] = value
        else:
            found.setdefault(name, value)
    return found


def _theme(colours: dict[str, str]) -> TerminalTheme:
    def rgb(name: str) -> tuple[int, int, int]:
        value = colours[name]
        return int(value[1:3], 16), int(value[3:5], 16), int(value[5:7], 16)

    eight = [rgb(name) for name in ("ink", "bad", "good", "warn", "link", "other", "mark", "quiet")]
    return TerminalTheme(rgb("raised"), rgb("ink"), eight, eight)
