"""`kbslurm …` in this process: what it printed, what it said on the side, and its exit code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbslurm.cli import main


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one command came to."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(kw_only=True)
class CommandLine:
    """A user at a keyboard: a working directory, a configuration, an environment of their own."""

    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, **env: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        standing = _standing(self.cwd, {**self.env, **env}, ["kbslurm", *words])
        with standing, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main()
        return Said(code=code, out=out.getvalue(), err=err.getvalue())


@contextlib.contextmanager
def _standing(cwd: Path, env: Mapping[str, str], argv: list[str]) -> Iterator[None]:
    before_argv, before_cwd, before = sys.argv, Path.cwd(), dict(os.environ)
    sys.argv = argv
    os.environ.update({"HOME": str(cwd), "KBSLURM_PERSON": "ada", **env})
    os.chdir(cwd)
    try:
        yield
    finally:
        sys.argv = before_argv
        os.chdir(before_cwd)
        os.environ.clear()
        os.environ.update(before)
