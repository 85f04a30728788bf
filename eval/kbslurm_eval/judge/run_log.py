"""What a run's processes wrote, as its author reads it: a trace that several of them met stands there once."""

from __future__ import annotations

HEAD = "Traceback (most recent call last):"


def without_repeats(text: str, before: str = "") -> str:
    """This text with one line in place of each trace that was already there, or that follows an equal one."""
    seen = {block for is_trace, block in _blocks(before) if is_trace}
    kept, again = list[str](), ""
    for is_trace, block in _blocks(text):
        if is_trace and block in seen:
            last = block.rstrip("\n").rpartition("\n")[2]
            if block != again:
                kept.append(f"{last}  [the trace is above]\n")
            again = block
            continue
        if is_trace:
            seen.add(block)
        again = block if is_trace else ""
        kept.append(block)
    return "".join(kept)


def _blocks(text: str) -> list[tuple[bool, str]]:
    """The text in pieces: traces, and what lies between them."""
    found: list[tuple[bool, list[str]]] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.rstrip("\n") == HEAD:
            found.append((True, [line]))
            inside = True
        elif inside:
            found[-1][1].append(line)
            inside = line[:1].isspace()
        elif found and not found[-1][0]:
            found[-1][1].append(line)
        else:
            found.append((False, [line]))
    return [(is_trace, "".join(lines)) for is_trace, lines in found]
