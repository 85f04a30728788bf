"""Similar sources as pages that open from disk: a list of the pairs, and each pair side by side. Everything in them
that people wrote is escaped, and no page loads anything."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from kbslurm.domain.similarity import lines_of

_STYLE = """body{font:16px/1.4 system-ui,sans-serif;margin:1.5rem;color:#1a1a1a;background:#fff}
table{border-collapse:collapse}th,td{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ccc}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:1rem}.pair>section{min-width:0}
pre{overflow-x:auto;border:1px solid #ccc;padding:.5rem;font-size:.8rem}
mark{background:#ffe28a;color:inherit}.n{color:#666;user-select:none}"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def file_of(pair: Mapping[str, Any]) -> str:
    """A pair's file."""
    return f"pair-{pair['left']['submission']}-{pair['right']['submission']}.html"


def index(found: Mapping[str, Any]) -> str:
    """The list of the pairs."""
    rows = "\n".join(
        f'<tr><td><a href="{file_of(row)}">{row["similarity"]:.0f} %</a>'
        f"</td><td>{_who(row['left'])}</td><td>{_who(row['right'])}</td><td>{row['pairs']}</td></tr>"
        for row in found["pairs"]
    )
    head = "<tr><th>Similar</th><th>Who</th><th>And who</th><th>Pairs that are so similar</th></tr>"
    body = (
        f"<p>{escape(found['note'])}</p><p>{found['sources']} sources of {found['people']} people.</p>"
        f"<table><thead>{head}</thead><tbody>\n{rows}\n</tbody></table>"
    )
    return _page(f"Similar sources: {found['leaderboard']}", body)


def of_pair(pair: Mapping[str, Any]) -> str:
    """Two sources side by side; the lines that both have are marked."""
    title = f"Submissions {pair['left']['submission']} and {pair['right']['submission']}"
    sides = "\n".join(_side(pair[name]) for name in ("left", "right"))
    return _page(
        title,
        f'<p><a href="index.html">All pairs</a></p><p>{escape(pair["note"])}</p><div class="pair">\n{sides}\n</div>',
    )


def _side(side: Mapping[str, Any]) -> str:
    heading = f"<h2>#{side['submission']} of {escape(side['name'])}</h2><p>{escape(side['leaderboard'])}</p>"
    files = "\n".join(f"<h3>{escape(file['name'])}</h3><pre>{_lines(file)}</pre>" for file in side["files"])
    cut = "<p>It is very long: only its beginning is compared and shown.</p>" if side["cut"] else ""
    return f"<section>{heading}{cut}\n{files}</section>"


def _lines(file: Mapping[str, Any]) -> str:
    return "\n".join(
        f'<span class="n">{number:5} </span>' + (f"<mark>{escape(text)}</mark>" if same else escape(text))
        for number, text, same in lines_of(file)
    )


def _who(side: Mapping[str, Any]) -> str:
    more = [f"section {side['section']}"] if side["section"] else []
    return escape(f"{side['name']} ({', '.join([*more, side['leaderboard']])})")


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )
