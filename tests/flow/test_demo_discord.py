"""`kbslurm demo --discord` as a stranger runs it: the conversation as it has to go, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

PATIENCE_S = 900.0


def started(place: Path) -> subprocess.Popen[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("KBSLURM_", "PG"))}
    command = [sys.executable, "-m", "kbslurm", "demo", "--discord", "--json"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True, env={**env, "TMPDIR": str(place)}
    )


def left_of(place: Path) -> list[str]:
    """Files that are still there, and processes that have to do with them."""
    lines = [" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
    return [*map(str, place.iterdir()), *(line for line in lines if str(place) in line)]


def test_the_conversation_goes_as_it_has_to_and_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="kb-") as short:
        demo = started(Path(short))
        out, err = demo.communicate(timeout=PATIENCE_S)
        assert demo.returncode == 0, err
        assert left_of(Path(short)) == []
    told: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    texts = [one["text"] for one in told]

    def after(kind: str, words: str, since: int = 0) -> int:
        """Where in the transcript that was told."""
        return next(n for n, one in enumerate(told) if n >= since and one["kind"] == kind and words in one["text"])

    # A board is announced and listed; what is wrong is one sentence each
    new = after("announcement", "New board: transpose")
    listed = after("answer", "transpose · H100", new)
    assert told[listed]["who"] == "ada"
    refused = after("answer", "There is no board 'transpsoe'", listed)
    bad = after("answer", "photo.png must end in one of", refused)
    # A card lives: the channel is told the class, its owner the reason
    wrong = after("card", "✗ wrong answer", bad)
    assert told[wrong]["edits"] and told[wrong]["buttons"] == ["Log", "Again", "Compare"]
    assert "an answer is wrong" in texts[after("answer", "#1 transpose", wrong)]
    assert not any("an answer is wrong" in one["text"] for one in told if one["kind"] == "card")
    # The bot is killed and goes on where it was
    killed = after("stage", "the bot is killed", wrong)
    verdict = after("card", "rank 1 of 1", after("stage", "finds its cards", killed))
    assert told[verdict]["edits"], "it is the same message"
    # A loaded machine's first score may be too wide to rank: then it was asked for again
    after("announcement", "★ ada leads transpose on H100", killed)
    # Its buttons work, for its owner
    foreign = after("answer", " isn't yours", verdict)
    assert told[foreign]["who"] == "boris"
    after("card", "cancelled", after("answer", " is cancelled", after("press", "[Again]", foreign)))
    best = after("card", "faster than own best", foreign)
    assert re.match(r"[2-9] own scores on transpose, H100", told[best]["pictures"][0])
    after("answer", "own previous best", after("press", "[Compare]", best))
    assert sum("leads transpose" in text for text in texts) <= 2, "each record once"


def test_it_can_be_interrupted() -> None:
    with tempfile.TemporaryDirectory(prefix="kb-") as short:
        demo = started(Path(short))
        assert demo.stdout is not None
        assert json.loads(demo.stdout.readline())["kind"] == "stage"
        demo.send_signal(signal.SIGINT)
        _, err = demo.communicate(timeout=PATIENCE_S)
        assert demo.returncode == 130 and "Traceback" not in err, err
        assert left_of(Path(short)) == []
