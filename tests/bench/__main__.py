"""`python -m tests.bench`: every bench module, as a table and as JSON lines."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import pkgutil
import sys
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table

from tests import bench
from tests.bench import Row


def main() -> int:
    asked = _asked()
    bench.SCALE = asked.scale
    console = Console(stderr=asked.json)
    rows: list[Row] = []
    for name in asked.only or _names():
        module = importlib.import_module(f"tests.bench.{name}")
        if getattr(module, "CLUSTER", False) is not asked.cluster:
            continue
        if not hasattr(module, "run") or (getattr(module, "APART", False) and not asked.only):
            continue
        began = perf_counter()
        found = module.run()
        rows += found
        console.print(_table(name, found, perf_counter() - began))
    for row in rows:
        print(json.dumps({**dataclasses.asdict(row), "is_met": row.is_met, "scale": asked.scale}))
    missed = [row.name for row in rows if row.is_met is False]
    if missed:
        console.print(f"[yellow]below the aim[/]: {', '.join(missed)}")
    return 1 if missed and asked.strict else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="MODULE", help="only these: " + ", ".join(_names()))
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 does a tenth of everything")
    parser.add_argument("--cluster", action="store_true", help="what needs the test cluster, and only that")
    parser.add_argument("--strict", action="store_true", help="exit code 1 when an aim is missed")
    parser.add_argument("--json", action="store_true", help="only the JSON lines on standard output")
    return parser.parse_args()


def _names() -> list[str]:
    found = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    return sorted(name for name in found if not name.startswith("_"))


def _table(name: str, rows: list[Row], took_s: float) -> Table:
    table = Table(title=f"{name} ({took_s:.0f} s)", title_justify="left")
    for column in ("what", "value", "against", "ratio", "aim", ""):
        table.add_column(column, justify="right" if column in ("value", "ratio", "aim") else "left")
    marks = {True: "[green]met[/]", False: "[yellow]below[/]", None: ""}
    for row in rows:
        aim = (
            f"≥ {row.at_least:g}"
            if row.at_least is not None
            else f"≤ {row.at_most:g}"
            if row.at_most is not None
            else ""
        )
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}×"
        value = "" if row.value is None else f"{row.value:,.4g} {row.unit}"
        table.add_row(row.name, value, row.against, ratio, aim, marks[row.is_met])
    return table


sys.exit(main())
