"""The only place where Slurm's commands are run: with hard timeouts and a clean environment, locally or over ssh,
counted."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kbslurm.backends.slurm import ssh_login
from kbslurm.domain.site import Site
from kbslurm.errors import BackendTrouble

OUTPUT_CAP = 64_000_000
KILL_AFTER_S = 5
CONNECT_S = 15
_ERROR = re.compile(r"^[ \t]*(?:\w+: )?(?:error|fatal): *(?P<what>.+)$", re.MULTILINE | re.IGNORECASE)
_KEPT = ("HOME", "USER", "LOGNAME", "TZ", "KRB5CCNAME")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A command's output. An error on stderr counts even with exit status 0."""

    tool: str
    status: int
    out: str
    err: str
    took_s: float

    @property
    def complaint(self) -> str:
        """The first error that it reports, or empty. Slurm's tools can report one and still exit 0."""
        found = _ERROR.search(self.err)
        if found:
            return found["what"].strip()
        return (self.err.strip() or f"{self.tool} ended with status {self.status}") if self.status else ""


class Commands:
    """Runs a site's scheduler commands. Thread-safe; its only state is counters. `before` is called before each of
    them, and may refuse it; `heard` after it."""

    def __init__(
        self,
        site: Site,
        *,
        environ: Mapping[str, str] | None = None,
        heard: Callable[[Answer], None] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.site = site
        self._environ = dict(os.environ if environ is None else environ)
        self._heard, self._before = heard, before
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()

    def argv(self, tool: str, arguments: Sequence[str], *, timeout_s: float) -> list[str]:
        """The full command with its clean environment and its own timeout, wherever it has to run."""
        slurm = self.site.slurm
        program = f"{slurm.bin_dir.rstrip('/')}/{tool}" if slurm.bin_dir else tool
        words = [program, *(("-M", slurm.cluster) if slurm.cluster and tool in _CLUSTERED else ()), *arguments]
        bounded = ["timeout", "-k", str(KILL_AFTER_S), str(max(1, round(timeout_s))), *words]
        if self.site.submit.via == "local":
            kept = {name: self._environ[name] for name in _KEPT if name in self._environ}
            kept["PATH"] = self._environ.get("PATH", os.defpath)
            return ["env", "-i", *(f"{k}={v}" for k, v in (kept | self._settings()).items()), *bounded]
        settings = [f"{k}={v}" for k, v in self._settings().items()]
        return [*self.ssh_argv(), shlex.join(["sh", "-c", _CLEAN_FAR, "sh", *settings, *bounded])]

    def ssh_argv(self) -> list[str]:
        """The ssh command up to the host: no prompts, keys only, one shared persistent connection."""
        submit = self.site.submit
        options = [
            "BatchMode=yes",
            "PasswordAuthentication=no",
            "KbdInteractiveAuthentication=no",
            "PreferredAuthentications=publickey,gssapi-with-mic",
            "StrictHostKeyChecking=yes",
            "ForwardAgent=no",
            "ForwardX11=no",
            "PermitLocalCommand=no",
            f"ConnectTimeout={CONNECT_S}",
            "ServerAliveInterval=15",
            "ServerAliveCountMax=3",
            "LogLevel=ERROR",
        ]
        if submit.by_hand:
            ours = f"ControlPath={submit.control_path}"
            options += ["ControlMaster=no", ours, f"ProxyCommand={ssh_login.INSTEAD_OF_CONNECTING}"]
        elif submit.control_path:
            options += ["ControlMaster=auto", f"ControlPath={submit.control_path}", "ControlPersist=300"]
        if submit.known_hosts:
            options += [f"UserKnownHostsFile={submit.known_hosts}"]
        if submit.identity:
            options += [f"IdentityFile={submit.identity}", "IdentitiesOnly=yes"]
        if submit.proxy_jump and not submit.by_hand:
            options += [f"ProxyJump={submit.proxy_jump}"]
        flags = [word for option in (*options, *submit.options) for word in ("-o", option)]
        return ["ssh", "-T", *flags, "-p", str(submit.port), *(("-l", submit.user) if submit.user else ()), submit.host]

    def run(
        self, tool: str, arguments: Sequence[str], *, timeout_s: float | None = None, told: str | None = None
    ) -> Answer:
        """Run it and wait at most `timeout_s`. BackendTrouble if it can't be run or doesn't end in time.

        `told`: its standard input.
        """
        if self._before is not None:
            self._before()
        limit_s = self.site.slurm.ask_timeout_s if timeout_s is None else timeout_s
        argv = self.argv(tool, arguments, timeout_s=limit_s)
        return self.run_argv(tool, argv, limit_s=limit_s + 2 * KILL_AFTER_S, told=told)

    def run_argv(self, tool: str, argv: Sequence[str], *, limit_s: float, told: str | None = None) -> Answer:
        """The same for a ready argv."""
        self.count(tool)
        began = time.monotonic()
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL if told is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=self._environ,
            )
        except OSError as error:
            raise BackendTrouble(self.site.name, f"{tool} can't be run: {error.strerror}") from None
        with process:
            try:
                out, err = process.communicate(None if told is None else told.encode(), timeout=limit_s)
            except subprocess.TimeoutExpired:
                _kill_group(process)
                process.communicate()
                self._tell(tool, 124, "", "", began)
                raise BackendTrouble(self.site.name, f"{tool} didn't answer in {limit_s:.0f} s") from None
        answer = self._tell(tool, process.returncode, _text(out), _text(err), began)
        if len(out) > OUTPUT_CAP:
            raise BackendTrouble(self.site.name, f"{tool} printed more than {OUTPUT_CAP // 1_000_000} MB")
        if answer.status in (124, 137):
            raise BackendTrouble(self.site.name, f"{tool} didn't answer in time")
        if answer.status in (126, 127):
            where = self.site.slurm.bin_dir or "PATH"
            raise BackendTrouble(
                self.site.name, f"{tool} wasn't found ({where})", hint="Set bin_dir under [slurm] of the site's file."
            )
        return answer

    def way(self) -> str:
        """How the scheduler is reached; empty: by its commands on this machine."""
        return f"ssh to {self.site.submit.host}" if self.site.submit.via == "ssh" else ""

    def only(self, ids: Sequence[str]) -> list[str]:
        """What confines a look at our jobs to these; nothing where one question shows ours alone anyway."""
        return []

    def lapse_in(self, status: int | None, said: str) -> str:
        """Why the scheduler certainly wasn't reached, and what to type; empty if it was, or may have been."""
        return ssh_login.lapse_in(self.site.submit, status, said)

    def count(self, tool: str) -> None:
        """Record one call of a tool, made here or by submitit."""
        with self._lock:
            self.calls[tool] += 1

    def charge(self, tool: str, calls: int) -> None:
        """Count queries that a library is about to make: each needs room in the budget and uses it, as a command
        does."""
        for _ in range(calls):
            if self._before is not None:
                self._before()
            self.count(tool)
            self._tell(tool, 0, "", "", time.monotonic())

    def _tell(self, tool: str, status: int, out: str, err: str, began: float) -> Answer:
        answer = Answer(tool=tool, status=status, out=out, err=err, took_s=time.monotonic() - began)
        if self._heard is not None:
            self._heard(answer)
        return answer

    def _settings(self) -> dict[str, str]:
        settings = {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"}
        if self.site.slurm.conf:
            settings["SLURM_CONF"] = self.site.slurm.conf
        return settings


_CLUSTERED = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo")
# Any remote shell may read this. sbatch's variables override a script's lines, so the account's own must be removed.
_CLEAN_FAR = " ".join(('exec env -i PATH="$PATH"', *(f'${{{name}:+{name}="${name}"}}' for name in _KEPT), '"$@"'))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()


def _text(raw: bytes) -> str:
    return raw[:OUTPUT_CAP].decode("utf-8", errors="replace")
