"""The judge's part of the protocol with the job script that starts its runners."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from kbslurm_eval.cage.container_runners import ContainerRunners
from kbslurm_eval.shared.wire import Limits


def obey(folder: Path, runner: subprocess.Popen[bytes], gone: threading.Event) -> None:
    """As the job script: the runner is there already."""
    with (folder / "ask").open() as asked:
        for line in asked:
            match line.split():
                case ["run", number]:
                    (folder / f"run.{number}.pid").write_text(f"{runner.pid}\n")
                case ["stop", number]:
                    runner.send_signal(signal.SIGKILL)
                    runner.wait()
                    (folder / f"run.{number}.status").write_text("137\n")
                    gone.wait(60)
                    (folder / f"run.{number}.cleared").write_text("1\n")
                case _:
                    return


@pytest.mark.parametrize("fact", ["clears=1\n", ""])
def test_a_runner_has_ended_once_what_it_wrote_is_gone(tmp_path: Path, fact: str) -> None:
    (tmp_path / "facts").write_text(f"container=apptainer\n{fact}")
    os.mkfifo(tmp_path / "ask")
    gone = threading.Event()
    with subprocess.Popen(["sleep", "600"]) as process:
        script = threading.Thread(target=obey, args=(tmp_path, process, gone))
        script.start()
        runners = ContainerRunners(tmp_path, tmp_path / "link", Limits())
        try:
            folder = runners.prepare()
            folder.mkdir(parents=True)
            runner = runners.start(folder)
            if fact:
                threading.Timer(0.2, gone.set).start()
            runner.kill()
            assert (tmp_path / f"run.{folder.name}.cleared").exists() is bool(fact)
            deadline = time.monotonic() + (0 if fact else 60)  # it may be told a moment later where nothing is cleared
            while runner.ended() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            assert runner.ended() is not None
        finally:
            gone.set()
            runners.close()
            process.kill()
            script.join()
