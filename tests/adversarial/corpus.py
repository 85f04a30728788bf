"""The corpus and what each file's head says.

# group: timing              one of GROUPS (cheats)
# catalogue: T1 T2           the kinds of attack it stands for
# tries: …                   what it wants (cheats) or `does: …` (honest)
# verdict: passed error      exactly these are right; `verdict at 1:` where a lower isolation allows others
# why several: …           needed where more than one verdict is right: what decides between them
# never: WORD …              what may stand in no log and no reason, whatever the verdict; `never at 1:` as well
# problem: sorting           or arrays (numpy, outputs allocated by the judge), or masked (some are infinite)
# works s: 0.02              an honest twin sleeps this long in each call, because this one does
# n: 6000                    the size at which it attacks, where that isn't any size
# levels: 2 1                the isolation levels at which it means anything; the first is what `make test` tries
# landlock at 1: 6           what a kernel's Landlock must be able to do for it at level 1
# race: yes                  whether it wins depends on timing: soaked in many rounds
# patience s: 8              how long a phase may take: it hangs until then, if its verdict is timeout
# needs: torch               a library without which it says nothing
"""

from __future__ import annotations

import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kbslurm_eval.cage import landlock
from kbslurm_eval.shared import wire

HERE = Path(__file__).resolve().parent
GROUPS = ("timing", "correctness", "forgery", "environment", "precomputation", "exfiltration", "persistence")
VERDICTS = typing.get_args(wire.VerdictName)
SMALL = {"sorting": 3_000, "arrays": 30_001, "masked": 3_000}
SIZES = {"sorting": (3_000, 6_000), "arrays": (30_001, 200), "masked": (3_000, 6_000)}
HIDDEN = {"n": 4409, "seed": 918_273}
PROBLEMS = {
    "sorting": """
# sealed-problem: nothing of this text may be seen by a submission
import random


def generate_input(n, seed):
    r = random.Random(seed)
    return [r.random() for _ in range(n)]


def ref_kernel(data):
    return sorted(data)


def check_implementation(data, output):
    want = sorted(data)
    return want == output, "" if want == output else f"{output[:2]} isn't {want[:2]}"
""",
    "arrays": """
# sealed-problem: nothing of this text may be seen by a submission
import numpy as np


def generate_input(n, seed):
    r = np.random.default_rng(seed)
    columns = 1 + n % 7
    a, b = (r.normal(2.0, 1.0, (n, columns)).astype(np.float32) for _ in range(2))
    return a, b, np.zeros((n, columns), np.float32)


def ref_kernel(data):
    a, b, out = data
    np.multiply(a, b, out=out)
    out += np.float32(1)
    return out


def check_implementation(data, output):
    a, b, _ = data
    want = a.astype(np.float64) * b.astype(np.float64) + 1
    wrong = ~(np.abs(output - want) <= 1e-6 + 4e-7 * (np.abs(want) + 1))
    return not wrong.any(), f"{int(wrong.sum())} of {wrong.size} numbers are wrong" if wrong.any() else ""
""",
}
PROBLEMS["masked"] = """
# sealed-problem: nothing of this text may be seen by a submission
import random


def generate_input(n, seed):
    r = random.Random(seed)
    return [1 + r.random() if r.random() < 0.9 else 0.0 for _ in range(n)]


def ref_kernel(data):
    return [-2.0 * x if x else float("-inf") for x in data]


def check_implementation(data, output):
    for got, want in zip(output, ref_kernel(data), strict=True):
        if got != want and abs(got - want) / max(abs(got), abs(want)) > 1e-9:
            return False, "too far off"
    return True, ""
"""
RIGHT = {
    "masked": "    return [-2.0 * x if x else float('-inf') for x in data]\n",
    "sorting": "    return sorted(data)\n",
    "arrays": "    a, b, out = data\n    np.multiply(a, b, out=out)\n    out += np.float32(1)\n    return out\n",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file of the corpus."""

    name: str
    honest: bool
    group: str
    catalogue: Sequence[str]
    tries: str
    verdicts: Sequence[str]
    verdicts_at: dict[int, Sequence[str]]
    never: Sequence[str]
    never_at: dict[int, Sequence[str]]
    problem: str
    works_s: float
    size: int | None
    levels: Sequence[int]
    landlock: int
    race: bool
    patience_s: float | None
    all_phases: bool
    needs: Sequence[str]
    source: str

    def expected(self, level: int) -> Sequence[str]:
        """The verdicts that are right at this isolation level."""
        return next((v for at, v in sorted(self.verdicts_at.items()) if level <= at), self.verdicts)

    def unheard(self, level: int) -> Sequence[str]:
        """The words that may stand in no log and no reason at this isolation level."""
        return next((v for at, v in sorted(self.never_at.items()) if level <= at), self.never)

    def lacks(self, level: int) -> str:
        """What this kernel is too old for, at this isolation level; empty where it can be tried."""
        if level != 1 or landlock.version() >= self.landlock:
            return ""
        return f"this kernel's Landlock is version {landlock.version()}, and {self.name} needs {self.landlock}"

    @property
    def twin(self) -> str:
        """Who does the same work honestly: the trusted baseline that this one is timed against."""
        slept = f"    time.sleep({self.works_s})\n" if self.works_s else ""
        libraries = "import numpy as np\n" if self.problem == "arrays" else ""
        return f"import time\n{libraries}\n\ndef custom_kernel(data):\n{slept}{RIGHT[self.problem]}"

    def sizes(self) -> Sequence[int]:
        """All sizes at which it is tried in full."""
        return SIZES[self.problem] if self.size is None else (self.size,)


def read(path: Path) -> Entry:
    """The entry in this file; ValueError when its head doesn't say what it must."""
    source = path.read_text(encoding="utf-8")
    head = dict(re.findall(r"^# ([a-z][a-z0-9 ]*): (.*)$", source, re.MULTILINE))
    honest = path.parent.name == "honest"
    words = {name: value.split() for name, value in head.items()}
    entry = Entry(
        name=path.stem,
        honest=honest,
        group="honest" if honest else head.get("group", ""),
        catalogue=words.get("catalogue", []),
        tries=head.get("does" if honest else "tries", ""),
        verdicts=words.get("verdict", ["passed"] if honest else []),
        verdicts_at={int(n.removeprefix("verdict at ")): v for n, v in words.items() if n.startswith("verdict at ")},
        never=_unescaped(words.get("never", [])),
        never_at={
            int(n.removeprefix("never at ")): _unescaped(v) for n, v in words.items() if n.startswith("never at ")
        },
        problem=head.get("problem", "sorting"),
        works_s=float(head.get("works s", 0)),
        size=int(head["n"]) if "n" in head else None,
        levels=[int(n) for n in words.get("levels", ["2", "1"])],
        landlock=int(head.get("landlock at 1", 0)),
        race=head.get("race") == "yes",
        patience_s=float(head["patience s"]) if "patience s" in head else None,
        all_phases=head.get("phases") == "all",
        needs=words.get("needs", []),
        source=source,
    )
    if not entry.tries or not entry.verdicts or (not honest and entry.group not in GROUPS):
        raise ValueError(f"{path} doesn't say its group, what it tries and which verdicts are right")
    if len(entry.verdicts) > 1 and not head.get("why several"):
        raise ValueError(f"{path} allows several verdicts and doesn't say why")
    if entry.problem not in PROBLEMS or set(entry.verdicts) - set(VERDICTS):
        raise ValueError(f"{path} names a problem or a verdict that there isn't")
    return entry


def _unescaped(words: Sequence[str]) -> list[str]:
    return [word.encode().decode("unicode_escape") for word in words]


def cheats() -> list[Entry]:
    """Everything that attacks."""
    return [read(path) for path in sorted((HERE / "cheats").glob("*.py"))]


def honest() -> list[Entry]:
    """Everything that looks strange and is not."""
    return [read(path) for path in sorted((HERE / "honest").glob("*.py"))]
