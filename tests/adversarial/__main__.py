"""`python -m tests.adversarial`: the corpus at every size and isolation level, as a table or as JSON lines.

With `--api` the attacks on the served API instead.

Exit code 0 when everything holds, 1 when something doesn't, 130 when interrupted. Nothing that it started is left.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kbslurm_eval.shared import wire
from tests.adversarial import api_trial, corpus, trial
from tests.adversarial.api_trial import Tried
from tests.adversarial.trial import Trial

FULL, ROUNDS = wire.Budget(launches=3, calls=8), wire.Budget(launches=2, calls=4)
APPTAINER = "apptainer"
START_S, RUN_S = 1200.0, 3600.0


def main() -> int:
    asked = _asked()
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    console = Console(stderr=True) if asked.json else Console()
    if asked.api:
        return _api(asked, console)
    entries = [one for one in _wanted(asked) if all(find_spec(library) for library in one.needs)]
    if not entries:
        console.print("There is no such file in the corpus.")
        return 2
    levels, why = _levels(asked.levels)
    for line in why:
        console.print(f"[yellow]{escape(line)}[/]")
    trials: list[Trial] = []
    status = 0
    try:
        for done in _all(entries, levels, asked):
            trials.append(done)
            if asked.json:
                print(json.dumps(dataclasses.asdict(done)), flush=True)
            else:
                console.print(_line(done), highlight=False)
    except KeyboardInterrupt:
        status = 130
        console.print("[yellow]interrupted[/]: this is what there was until then")
    console.print(_table(trials))
    bad = [one for one in trials if one.faults]
    for one in bad:
        for fault in one.faults:
            console.print(f"[red]{one.group}/{one.name}[/] level {one.level}, n {one.size}: {escape(fault)}")
    slowest = max((one.took_s for one in trials), default=0.0)
    console.print(
        f"{len(trials)} trials of {len(entries)} files, {len(bad)} with faults; the longest took {slowest:.0f} s"
    )
    return status or (1 if bad or not trials else 0)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.adversarial", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="FILE", help="only these: names of files, or groups")
    parser.add_argument("--levels", default="", help="of 2, 1 and apptainer, with commas between; all that can be had")
    parser.add_argument("--small", action="store_true", help="the small size only")
    parser.add_argument("--races", action="store_true", help="only what wins by luck with timing, if ever")
    parser.add_argument("--api", action="store_true", help="attack the served API, on loopback, instead of the harness")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="how often each trial is made")
    parser.add_argument("--shard", default="1/1", metavar="I/M", help="the Ith of M parts of all trials")
    parser.add_argument("--json", action="store_true", help="one line of JSON per trial, and the table on stderr")
    asked = parser.parse_args()
    part, _, parts = asked.shard.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        parser.error(f"--shard {asked.shard} isn't I/M with I from 1 to M")
    if asked.rounds < 1:
        parser.error("--rounds must be at least 1")
    asked.shard = int(part), int(parts)
    return asked


def _api(asked: argparse.Namespace, console: Console) -> int:
    wanted = api_trial.attacks(asked.only)
    if not wanted:
        console.print("There is no such attack.")
        return 2
    status, came = 0, list[Tried]()
    try:
        for done in api_trial.all_tried(wanted, size="small" if asked.small else "full", rounds=asked.rounds):
            came.append(done)
            if asked.json:
                print(json.dumps(dataclasses.asdict(done)), flush=True)
            else:
                console.print(_told(done), highlight=False)
    except KeyboardInterrupt:
        status = 130
        console.print("[yellow]interrupted[/]: this is what there was until then")
    bad = sum(bool(one.faults) for one in came)
    console.print(f"{len(came)} attacks on the API, {bad} of which gained something")
    return status or (1 if bad or not came else 0)


def _wanted(asked: argparse.Namespace) -> list[corpus.Entry]:
    every = [*corpus.cheats(), *corpus.honest()]
    chosen = [one for one in every if not asked.only or {one.name, one.group} & set(asked.only)]
    return [one for one in chosen if one.race or not asked.races]


def _levels(asked: str) -> tuple[list[str], list[str]]:
    """The isolation levels that can be had here, and why others can't."""
    wanted = [word.strip() for word in asked.split(",") if word.strip()] or ["2", "1", APPTAINER]
    have, why = [], []
    for word in wanted:
        if word == APPTAINER:
            lack = "a cluster of its own needs root" if os.geteuid() else ""
            lack = lack or ("" if shutil.which("mmdebstrap") else "mmdebstrap isn't installed")
            if lack:
                why.append(f"not inside Apptainer: {lack}")
                continue
        elif not word.isdigit() or (found := _probed(word))["level"] != int(word):
            notes = f" ({'; '.join(found['notes'])})" if word.isdigit() and found["notes"] else ""
            why.append(f"not at level {word}: it can't be reached on this machine{notes}")
            continue
        have.append(word)
    return have, why


def _probed(level: str) -> dict[str, Any]:
    """What is reached here where no more than this level is asked for."""
    probe = [sys.executable, "-I", str(trial.EVAL), "--probe"]
    env = {**os.environ, "KBSLURM_EVAL_LEVEL": level}
    done = subprocess.run(probe, capture_output=True, text=True, timeout=300, check=True, env=env)
    return dict(json.loads(done.stdout))


def _all(entries: Sequence[corpus.Entry], levels: Sequence[str], asked: argparse.Namespace) -> Iterator[Trial]:
    plan = [
        (entry, int(level), size)
        for _ in range(asked.rounds)
        for level in levels
        if level != APPTAINER
        for entry in entries
        if int(level) in entry.levels and not entry.lacks(int(level))
        for size in (entry.sizes()[:1] if asked.small else entry.sizes())
    ]
    part, parts = asked.shard
    budget = FULL if asked.rounds == 1 else ROUNDS  # a soak looks for luck, in many short runs
    for entry, level, size in plan[part - 1 :: parts]:
        yield trial.tried(entry, level=level, size=size, budget=budget)
    if APPTAINER in levels:
        mine = [entry for entry in entries if 2 in entry.levels][part - 1 :: parts]
        for _ in range(asked.rounds):
            yield from _in_apptainer(mine)


def _in_apptainer(entries: Sequence[corpus.Entry]) -> list[Trial]:
    """The same on a test cluster's node, as its ordinary user, by job scripts."""
    from tests.cluster.run_inside import Cluster

    if not entries:
        return []
    folder = Path(tempfile.mkdtemp(prefix="kbc-"))
    cluster = Cluster(folder)
    try:
        _done(cluster, "start", "--with-pid", str(os.getpid()), timeout_s=START_S)
        out = cluster.shared / "corpus.jsonl"
        out.touch()
        os.chown(out, 1000, 1000)
        _done(
            cluster,
            *("exec", "--user", "kb", "--cwd", "/kb/src", "--env=PYTHONDONTWRITEBYTECODE=1", "--"),
            *("/kb/venv/bin/python", "-m", "tests.adversarial.contained", "/shared", "/shared/corpus.jsonl"),
            *(entry.name for entry in entries),
            timeout_s=RUN_S,
        )
        return [Trial(**json.loads(line)) for line in out.read_text().splitlines()]
    finally:
        cluster.up("stop")
        shutil.rmtree(folder, ignore_errors=True)


def _done(cluster: Any, *arguments: str, timeout_s: float) -> None:
    done = cluster.up(*arguments, timeout_s=timeout_s)
    if done.returncode:
        raise SystemExit(f"up.py {arguments[0]} ended with status {done.returncode}:\n{done.stdout[-6000:]}")


# --------------------------------------------------------------------------------------------------------------- shown


def _line(one: Trial) -> str:
    ratio = "" if one.ratio is None else f", {one.ratio:.2f}× its twin"
    mark = "[red]✗[/]" if one.faults else "[green]✓[/]"
    line = f"{mark} {one.group}/{one.name} level {one.level}, n {one.size}: {one.verdict}{ratio} ({one.took_s:.1f} s)"
    return "\n  ".join([line, *map(escape, one.faults)])


def _told(one: Tried) -> str:
    mark = "[red]✗[/]" if one.faults else "[green]✓[/]"
    figures = "".join(f", {name} {value:g}" for name, value in one.figures.items() if len(one.figures) < 6)
    return "\n  ".join(
        [f"{mark} {one.name}, {one.size} size ({one.took_s:.1f} s){escape(figures)}", *map(escape, one.faults)]
    )


def _table(trials: Sequence[Trial]) -> Table:
    table = Table(title="the corpus", title_justify="left")
    for column in ("group", "file", "level", "verdicts", "× its twin", "trials", "faults"):
        table.add_column(
            column, justify="right" if column in ("× its twin", "trials", "faults") else "left", no_wrap=True
        )
    rows: dict[tuple[str, str, str], list[Trial]] = {}
    for one in trials:
        rows.setdefault((one.group, one.name, one.level), []).append(one)
    for (group, name, level), found in sorted(rows.items()):
        said = ", ".join(f"{verdict or 'none'} {n}" for verdict, n in Counter(t.verdict for t in found).most_common())
        ratios = [t.ratio for t in found if t.ratio is not None]
        least = f"{min(ratios):.2f}" if ratios else ""
        bad = sum(bool(t.faults) for t in found)
        table.add_row(group, name, level, said, least, str(len(found)), f"[red]{bad}[/]" if bad else "0")
    return table


if __name__ == "__main__":
    sys.exit(main())
