"""A runner: it does the steps of a workflow's job, from the real YAML, in real processes.

`run:` goes to bash as the service's own runners do it; checkout, setup-python and upload-artifact are done here. A
cancel is a SIGINT, then a SIGTERM, then a SIGKILL to the step's process, after which only `always()` is done.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.github.expressions import filled, holds, said

PATIENCE_S = 7.5
KNOWN_KEYS = {"name", "id", "if", "uses", "with", "run", "env", "shell"}
# What a machine that GitHub lends has, and nothing of who started this server.
MACHINE = ("PATH", "LANG", "LC_ALL", "TZ", "CUDA_VISIBLE_DEVICES", "KBSLURM_EVAL_LEVEL")


@dataclass
class Step:
    name: str
    number: int
    conclusion: str = "skipped"
    outcome: str = ""


@dataclass
class Job:
    """One job on its way."""

    run_id: int
    workflow: Mapping[str, Any]
    inputs: Mapping[str, str]
    secrets: Mapping[str, str]
    github: Mapping[str, Any]
    files: Mapping[str, bytes]
    folder: Path
    runner_name: str
    upload: Callable[[str, bytes], None]
    has_old_python: bool = False
    steps: list[Step] = field(default_factory=list)
    log: bytearray = field(default_factory=bytearray)
    status: str = "success"
    cancelled: threading.Event = field(default_factory=threading.Event)
    killed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.outputs: dict[str, dict[str, Any]] = {}
        self.workspace, self.temp = self.folder / "work", self.folder / "temp"

    # ------------------------------------------------------------------------------------------------------- doing

    def do(self) -> str:
        """All steps; the job's conclusion."""
        (job,) = self.workflow["jobs"].values()
        for made in (self.workspace, self.temp):
            made.mkdir(parents=True)
        limit = threading.Timer(60.0 * float(filled(job["timeout-minutes"], self.context())), self.cancelled.set)
        limit.daemon = True
        limit.start()
        try:
            for number, told in enumerate(job["steps"], start=1):
                self.steps.append(step := Step(name=filled(told.get("name", ""), self.context()), number=number))
                if self.killed.is_set():
                    break
                self._step(step, told, job)
        finally:
            limit.cancel()
            shutil.rmtree(self.folder, ignore_errors=True)
        return "failure" if self.killed.is_set() else self.status

    def context(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "secrets": self.secrets,
            "github": self.github,
            "runner": {"temp": str(self.temp), "environment": "self-hosted", "name": self.runner_name},
            "steps": self.outputs,
            "job": {"status": self.status},
        }

    def _step(self, step: Step, told: Mapping[str, Any], job: Mapping[str, Any]) -> None:
        if strange := set(told) - KNOWN_KEYS:
            raise ValueError(f"a step has {strange}, which this runner doesn't know")
        if self.cancelled.is_set() and self.status == "success":
            self.status = "cancelled"
        if not holds(told.get("if"), self.context()):
            step.outcome = "skipped"
        else:
            self._say(f"##[group]{step.name}")
            env = {key: said(value) for key, value in filled(told.get("env", {}), self.context()).items()}
            done = self._used(told) if "uses" in told else self._ran(step, told, job, env)
            if self.cancelled.is_set() and self.status == "success":
                self.status = step.outcome = step.conclusion = "cancelled"
            else:
                step.outcome = step.conclusion = "success" if done else "failure"
                if not done and self.status == "success":
                    self.status = "failure"
        if "id" in told:
            self.outputs.setdefault(told["id"], {"outputs": {}})["outcome"] = step.outcome

    def _ran(self, step: Step, told: Mapping[str, Any], job: Mapping[str, Any], env: Mapping[str, str]) -> bool:
        if job.get("defaults", {}).get("run", {}).get("shell") != "bash":
            raise ValueError("this runner only knows bash")
        script, output = self.temp / f"step-{step.number}.sh", self.temp / f"output-{step.number}"
        script.write_text(filled(told["run"], self.context()))
        output.touch()
        machine = {key: os.environ[key] for key in MACHINE if key in os.environ}
        machine["PATH"] = f"{Path(sys.executable).parent}:{machine.get('PATH', os.defpath)}"
        if self.has_old_python:
            machine["PATH"] = f"{self._old_python()}:{machine['PATH']}"
        own = {
            "GITHUB_ACTIONS": "true",
            "CI": "true",
            "GITHUB_OUTPUT": str(output),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_REPOSITORY": self.github["repository"],
            "GITHUB_API_URL": self.github["api_url"],
            "GITHUB_SERVER_URL": self.github["server_url"],
            "GITHUB_SHA": self.github["sha"],
            "GITHUB_RUN_ID": str(self.run_id),
            "GITHUB_RUN_ATTEMPT": str(self.github.get("run_attempt", 1)),
            "RUNNER_TEMP": str(self.temp),
            "RUNNER_NAME": self.runner_name,
            "HOME": str(self.folder),
        }
        process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace,
            env={**machine, **own, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        reading = threading.Thread(target=self._hear, args=(process,), daemon=True)
        reading.start()
        code = self._watched(process, told)
        reading.join(timeout=PATIENCE_S)
        if "id" in told:
            lines = [line.split("=", 1) for line in output.read_text().splitlines() if "=" in line]
            self.outputs[told["id"]] = {"outputs": dict(lines)}
        return code == 0

    def _old_python(self) -> Path:
        """A folder whose `python3` is of a system from before 3.11."""
        folder = self.folder / "old"
        folder.mkdir(exist_ok=True)
        (folder / "python3").write_text("#!/bin/sh\necho 'Unknown option: -P' >&2\nexit 2\n")
        (folder / "python3").chmod(0o755)
        return folder

    def _watched(self, process: subprocess.Popen[bytes], told: Mapping[str, Any]) -> int:
        """Wait for it; end it when the job is cancelled, as the real runner does."""
        always = "always()" in str(told.get("if", ""))
        signals = [(signal.SIGINT, PATIENCE_S), (signal.SIGTERM, 2.5), (signal.SIGKILL, 60.0)]
        until = 0.0
        while True:
            try:
                return process.wait(timeout=0.02)
            except subprocess.TimeoutExpired:
                if self.killed.is_set():
                    process.kill()
                elif self.cancelled.is_set() and not always and time.monotonic() >= until and signals:
                    number, wait_s = signals.pop(0)
                    until = time.monotonic() + wait_s
                    process.send_signal(number)

    def _hear(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            while chunk := os.read(stream.fileno(), 65_536):
                for secret in (value.encode() for value in self.secrets.values() if value):
                    chunk = chunk.replace(secret, b"***")
                self.log += chunk[: max(0, (1 << 20) - len(self.log))]

    def _say(self, line: str) -> None:
        self.log += f"{line}\n".encode()

    # ------------------------------------------------------------------------------------------------ what `uses` do

    def _used(self, told: Mapping[str, Any]) -> bool:
        given = filled(told.get("with", {}), self.context())
        action = str(told["uses"]).partition("@")[0]
        match action:
            case "actions/checkout":
                if given.get("persist-credentials") is not False:
                    raise ValueError("a checkout that leaves its token behind")
                for name, data in self.files.items():
                    path = self.workspace / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
                return True
            case "actions/upload-artifact" if not self.github["server_url"].endswith(("//github.com", ".ghe.com")):
                self._say("##[error]upload-artifact@v4+ and download-artifact@v4+ are not currently supported on GHES.")
                return False
            case "actions/upload-artifact":
                path = Path(given["path"])
                if not path.is_file():
                    self._say(f"No files were found with the provided path: {path}")
                    return str(given.get("if-no-files-found")) != "error"
                packed = io.BytesIO()
                with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                    archive.writestr(path.name, path.read_bytes())
                self.upload(given["name"], packed.getvalue())
                return True
            case _:
                pass
        raise ValueError(f"this runner doesn't know {action}")


def parsed(text: bytes) -> dict[str, Any]:
    """A workflow's YAML. In YAML 1.1 the key `on` is the boolean, and it is put right here."""
    found: dict[Any, Any] = yaml.safe_load(text)
    if True in found:
        found["on"] = found.pop(True)
    return found
