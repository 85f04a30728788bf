#!/usr/bin/env python3
"""A whole cluster on this machine: real Slurm, accounting, Apptainer, sshd, in namespaces of its own.

    python3 tests/cluster/up.py start  --dir D [--slurm V] [--min-job-age S] [--with-pid PID] …
    python3 tests/cluster/up.py exec   --dir D [--user kb] [--cwd P] [--env K=V] -- CMD…    (exit code of CMD)
    python3 tests/cluster/up.py ctl    --dir D start|stop|restart|kill|freeze|thaw slurmctld|slurmdbd|slurmd:NODE|…
    python3 tests/cluster/up.py shell|status|stop --dir D

Everything the cluster writes lies below D; ending its first process ends all of it. Two clusters never meet: each has
its own mounts, processes, host name and network, and there is no way out of that network. Inside: /kb/src is this
checkout (read-only), /kb/venv the locked requirements, /shared (D/shared on the host) the site's shared file system,
/scratch a node disk of 64 MiB, /opt/kb/images the job images, /kb/pyslurm what `tree.py pyslurm` built. Users: kb and
other; kb may ssh to localhost.

Standard library only; run it as root with the host's python3. The same file runs inside with the tree's python3.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))  # run as a script there is no package yet

from tests.cluster import conf_slurm, host_groups, power, tree  # noqa: E402
from tests.cluster import tree_namespaces as ns  # noqa: E402

PATH = "/kb/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
INSIDE = ["/usr/bin/python3", "/kb/src/tests/cluster/up.py"]
LOGS = "/var/log/slurm"
PIDS = Path("/run/kb")
OURS = ("lower", "upper", "work", "root", "shared", "logs", "cluster.json")


class NotUp(tree.Trouble):
    """The cluster is not running, or would not start."""


# ------------------------------------------------------------------------------------------------------- from outside


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster as its folder records it."""

    pid: int
    born: str  # the process's start time: a number that was given to another process since then is not ours
    options: conf_slurm.Options
    ready: bool = False  # false while it starts; should its starter die then, the cluster dies too

    def alive(self) -> bool:
        return _born(self.pid) == self.born


def _born(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; None when there is none or only its exit status is left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def recorded(folder: Path) -> Cluster | None:
    """The cluster in this folder if it's running."""
    try:
        kept = json.loads((folder / "cluster.json").read_text())
        kept["options"]["extra"] = tuple(kept["options"]["extra"])
        cluster = Cluster(**{**kept, "options": conf_slurm.Options(**kept["options"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return cluster if cluster.alive() else None


def running(folder: Path) -> Cluster:
    """The same, or NotUp."""
    cluster = recorded(folder)
    if cluster is None:
        raise NotUp(f"No cluster is running in {folder} (start one with: up.py start --dir {folder}).")
    return cluster


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder. Its lock file goes with a stopped cluster: whoever waited for it then takes the new one."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            break
        os.close(handle)
    try:
        yield
    finally:
        os.close(handle)


def start(
    folder: Path,
    options: conf_slurm.Options,
    *,
    with_pid: int | None = None,
    torch: bool = False,
    timeout_s: float = 180,
) -> Cluster:
    """Bring a cluster up in this folder, or find it up; all nodes are idle then. A failed start leaves nothing."""
    folder = folder.resolve()
    if (folder / "requirements.lock").exists() or folder == tree.cache_root():
        raise NotUp(f"{folder} is not a folder for a cluster: give it one of its own, such as .cluster/interactive.")
    with _locked(folder):
        there = recorded(folder)
        if there is not None and not there.ready:
            _end(there)
        elif there is not None:
            if there.options != options:
                raise NotUp(f"A cluster with other options is up in {folder}: stop it first.")
            return there
        if options.cgroups and (why := host_groups.lacking()):
            raise NotUp(f"{host_groups.NO_GROUPS}: {why}.")
        binds = _binds(folder, options, torch=torch)
        tree.check_host()
        _clear(folder)
        # As long as nothing is written to it, the first process ends when this pipe's writing end is closed: with us.
        reading, birth = os.pipe()
        cluster = _launch(folder, tree.build(options.slurm), options, binds, reading, with_pid)
        try:
            _boot(folder, timeout_s)
            os.write(birth, b"1")
            cluster = replace(cluster, ready=True)
            _record(folder, cluster)
        except BaseException:
            tails = _log_tails(folder)
            _end(cluster)
            _clear(folder)
            if tails:
                print(tails, file=sys.stderr)
            raise
        finally:
            os.close(birth)
        return cluster


def _record(folder: Path, cluster: Cluster) -> None:
    fresh = folder / "cluster.json.new"
    fresh.write_text(json.dumps(asdict(cluster)))
    fresh.replace(folder / "cluster.json")


def _binds(folder: Path, options: conf_slurm.Options, *, torch: bool) -> list[ns.Bind]:
    """Build what is missing, and say where it goes."""
    root = tree.build(options.slurm)
    binds = [
        ns.Bind(source=CHECKOUT, target="/kb/src"),
        ns.Bind(source=folder / "shared", target="/shared", writable=True),
        ns.Bind(source=folder / "logs", target=LOGS, writable=True),
    ]
    venv = tree.venv(root)
    if venv is not None:
        binds.append(ns.Bind(source=venv, target="/kb/venv"))
    pyslurm = tree.pyslurm(options.slurm)
    if pyslurm is not None:
        binds.append(ns.Bind(source=pyslurm, target="/kb/pyslurm"))
    if tree.RECIPES[options.slurm].apptainer:
        for name in ("cpu", "torch") if torch else ("cpu",):
            made = tree.image(name)
            binds.append(ns.Bind(source=made / name, target=f"/opt/kb/images/{name}"))
            if (made / f"{name}.sif").exists():
                binds.append(ns.Bind(source=made / f"{name}.sif", target=f"/opt/kb/images/{name}.sif"))
    return binds


def _launch(
    folder: Path,
    root: Path,
    options: conf_slurm.Options,
    binds: Sequence[ns.Bind],
    birth: int,
    with_pid: int | None,
) -> Cluster:
    """Start the cluster's first process; it owns the namespaces."""
    for name in ("shared", "logs"):
        (folder / name).mkdir()
    os.chown(folder / "shared", 1000, 1000)
    (folder / "shared").chmod(0o755)
    (folder / "logs").chmod(0o777)
    watched = [birth] if with_pid is None else [birth, _pidfd(with_pid)]
    order = {
        "folder": str(folder),
        "tree": str(root),
        "options": asdict(options),
        "binds": [[str(one.source), one.target, one.writable] for one in binds],
        "watch": watched,
    }
    with subprocess.Popen(
        [sys.executable, __file__, "__launch", json.dumps(order)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=watched,
    ) as launcher:
        answer, _ = launcher.communicate()
    for handle in watched:
        os.close(handle)
    number, _, trouble = answer.partition("\n")
    born = _born(int(number)) if number.isdigit() else None
    if trouble or born is None:
        _clear(folder)
        raise NotUp(f"The cluster's namespaces could not be made: {trouble.strip() or answer or 'no answer'}.")
    cluster = Cluster(pid=int(number), born=born, options=options)
    _record(folder, cluster)
    return cluster


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError as trouble:
        raise NotUp(f"There is no process {pid} to live and die with: {trouble.strerror}.") from None


def _launch_in_namespaces(text: str) -> int:
    """The launcher: fork the first process of new namespaces, say its number, end. Runs in a process of its own."""
    order = json.loads(text)
    options = conf_slurm.Options(**{**order["options"], "extra": tuple(order["options"]["extra"])})
    binds = [ns.Bind(source=Path(source), target=target, writable=able) for source, target, able in order["binds"]]
    os.setsid()
    ns.unshare(ns.CLONE_NEWNS | ns.CLONE_NEWPID | ns.CLONE_NEWUTS | ns.CLONE_NEWNET | ns.CLONE_NEWIPC)
    pid = os.fork()
    if pid:
        os.write(1, f"{pid}\n".encode())
        os._exit(0)
    # The answer's pipe closes when the first process turns into the tree's Python: only trouble is written to it.
    answer = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        _settle(Path(order["folder"]), Path(order["tree"]), options, binds)
        log = os.open(f"{LOGS}/first.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        watched = [str(handle) for handle in order["watch"]]
        env = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        os.execve(INSIDE[0], [*INSIDE, "__first", *watched], env)
    except BaseException as trouble:  # this is a fork: everything must end here, in one line
        os.write(answer, f"{trouble}\n".encode())
    os._exit(1)


def _settle(folder: Path, lower: Path, options: conf_slurm.Options, binds: Sequence[ns.Bind]) -> None:
    """Lay out the root and enter it."""
    ns.make_private()
    root = ns.overlay(lower, folder)
    tmpfs = {"/tmp": "mode=1777", "/run": "mode=755", "/scratch": "mode=1777,size=64m"}
    ns.furnish(root, conf_slurm.devices(), tmpfs=tmpfs, cgroups=options.cgroups)
    for one in binds:
        ns.bind(one, root)
    for name, content in conf_slurm.site(options).items():
        place = root / name.lstrip("/")
        place.unlink(missing_ok=True)
        place.write_text(content)
    (root / "etc/slurm/slurmdbd.conf").chmod(0o600)
    ns.set_hostname(conf_slurm.HOST)
    ns.pivot(root)
    _install_project()


def _install_project() -> None:
    """Make the checkout look installed: its metadata and its commands, made anew for every cluster."""
    described = tomllib.loads(Path("/kb/src/pyproject.toml").read_text())["project"]
    name, scripts = described["name"], described.get("scripts", {})
    stated = re.search(r'__version__ = "(.+)"', Path(f"/kb/src/{name}/__init__.py").read_text())
    version = described.get("version") or (stated.group(1) if stated else "0")
    info = Path(f"/kb/site/{name}-{version}.dist-info")
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(
        "[console_scripts]\n" + "".join(f"{command} = {where}\n" for command, where in scripts.items())
    )
    for command, where in scripts.items():
        module, _, function = where.partition(":")
        script = Path("/usr/local/bin") / command
        script.write_text(
            f"#!/kb/venv/bin/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        script.chmod(0o755)


def _boot(folder: Path, timeout_s: float) -> None:
    done = subprocess.run(
        [
            sys.executable,
            __file__,
            "exec",
            "--dir",
            str(folder),
            "--user",
            "root",
            "--",
            *INSIDE,
            "__boot",
            str(timeout_s),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines() or ["no output"]
        raise NotUp(f"The cluster did not come up: {lines[-1].removeprefix('cluster: ')}")


def _log_tails(folder: Path, lines: int = 12) -> str:
    """The last lines of every daemon's log."""
    tails = []
    for log in sorted((folder / "logs").glob("*.log")):
        text = log.read_text(errors="replace").splitlines()[-lines:]
        if text:
            tails.append("\n".join([f"--- {log.name}", *text]))
    return "\n".join(tails)


def _end(cluster: Cluster) -> None:
    """Kill the first process: the kernel ends every other in its PID namespace before that one is gone."""
    with suppress(OSError):
        handle = os.pidfd_open(cluster.pid)
        try:
            if cluster.alive():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                select.select([handle], [], [], 30)
        finally:
            os.close(handle)


def _clear(folder: Path) -> None:
    for name in OURS:
        tree.remove(folder / name)


def stop(folder: Path, *, keep_logs: bool = False) -> bool:
    """End the cluster in this folder and remove what it wrote; False when none was up. Safe to repeat."""
    folder = folder.resolve()
    if not folder.exists():
        return False
    with _locked(folder):
        cluster = recorded(folder)
        if cluster is not None:
            _end(cluster)
            if cluster.options.cgroups:
                host_groups.remove()
        for name in OURS:
            if not (keep_logs and name == "logs"):
                tree.remove(folder / name)
        (folder / ".lock").unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
    return cluster is not None


def enter(folder: Path, argv: Sequence[str], *, user: str = "kb", cwd: str | None = None, env: dict[str, str]) -> int:
    """Run a command inside, as this process's own child; gives its exit code.

    This process joins the cluster's namespaces for good. The command dies with it, and gets its SIGTERM and SIGINT.
    """
    cluster = running(folder.resolve())
    try:
        ns.join(cluster.pid)
    except (FileNotFoundError, ProcessLookupError):
        raise NotUp(f"The cluster in {folder} has just ended.") from None
    except PermissionError:
        raise tree.HostLacks("Entering the test cluster needs root.") from None
    name, uid, gid, home = _account(user)
    place = cwd or home
    fresh = {
        "PATH": PATH,
        "HOME": home,
        "USER": name,
        "LOGNAME": name,
        "SHELL": "/bin/bash",
        "XDG_RUNTIME_DIR": f"/run/user/{uid}" if uid else "/run",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        **{key: os.environ[key] for key in ("TERM", "COLUMNS", "LINES", "NO_COLOR") if key in os.environ},
        **env,
    }

    def child() -> NoReturn:
        if uid:
            ns.become(uid, gid)
        ns.die_with_parent()
        try:
            os.chdir(place)
            os.execvpe(argv[0], list(argv), fresh)
        except OSError as trouble:
            os.write(2, f"cluster: {argv[0]} in {place}: {trouble.strerror}\n".encode())
            os._exit(127 if isinstance(trouble, FileNotFoundError) else 126)

    return ns.fork_and_wait(child)


def _account(user: str) -> tuple[str, int, int, str]:
    """Name, uid, gid and home, from the tree's own file: the host's name services know nothing of it."""
    for line in Path("/etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == user:
            return user, int(fields[2]), int(fields[3]), fields[5]
    raise NotUp(f"The cluster has no user {user}.")


# -------------------------------------------------------------------------------------------------------- from inside


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """How a daemon is started: always in the foreground, so that its process number is known from the start."""

    argv: tuple[str, ...]
    user: str = "root"


def daemons() -> dict[str, Daemon]:
    """Every daemon of the cluster, by the name that `ctl` uses."""
    table = {
        "munged": Daemon(argv=("munged", "--foreground"), user="munge"),
        "mariadb": Daemon(argv=("mariadbd", "--defaults-file=/etc/mysql/kbslurm.cnf", "--user=mysql"), user="mysql"),
        "slurmdbd": Daemon(argv=("slurmdbd", "-D"), user="slurm"),
        "slurmctld": Daemon(argv=("slurmctld", "-D"), user="slurm"),
        "sshd": Daemon(argv=("/usr/sbin/sshd", "-D", "-e")),
    }
    if shutil.which("slurmrestd", path="/usr/sbin"):  # neither root nor Slurm's own user may run it
        listens = (f"unix:{conf_slurm.REST_SOCKET}", f"127.0.0.1:{conf_slurm.REST_PORT}")
        by_token = ("env", "SLURM_JWT=daemon", "slurmrestd", "-a", "rest_auth/jwt")  # else it knows munge alone
        # With no accounting to reach it ends at once, unless it is told to leave that out
        only = () if _has_accounting() else ("-s", "slurmctld")
        table["slurmrestd"] = Daemon(argv=(*by_token, *only, *listens), user="daemon")
    for node in conf_slurm.NODES:
        table[f"slurmd:{node.name}"] = Daemon(argv=("slurmd", "-D", "-N", node.name))
    return table


def grown() -> dict[str, Daemon]:
    """The node that registers itself: no part of the cluster until somebody starts it."""
    node = conf_slurm.GROWN.name
    return {f"slurmd:{node}": Daemon(argv=("slurmd", "-D", "-Z", "-N", node, "--conf", conf_slurm.grown_conf()))}


def _has_accounting() -> bool:
    return "slurmdbd" in Path("/etc/slurm/slurm.conf").read_text()


def first(watched: Sequence[str]) -> int:
    """Process 1 of the cluster: reaps what is orphaned, and ends everything by ending itself.

    It does that when a watched process is gone, or its starter before the cluster was up. `watched` are handles: the
    starter's pipe, then processes.
    """
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    birth, *processes = [int(one) for one in watched]
    for handle in (birth, *processes):
        os.set_inheritable(handle, False)
        poller.register(handle, select.POLLIN)
    while True:
        ready = {handle for handle, _ in poller.poll()}
        if ready & set(processes):
            return 0
        if birth in ready:
            if not os.read(birth, 1):
                return 0
            poller.unregister(birth)
        with suppress(BlockingIOError):
            os.read(reading, 4096)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _pid_of(name: str) -> int | None:
    """The daemon's process, if it lives."""
    try:
        number, born = (PIDS / name).read_text().split()
    except (OSError, ValueError):
        return None
    return int(number) if _born(int(number)) == born else None


def spawn(name: str) -> None:
    """Start a daemon; it belongs to process 1 at once."""
    if _pid_of(name) is not None:
        return
    one = (daemons() | grown())[name]
    account = pwd.getpwnam(one.user)
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
    PIDS.mkdir(exist_ok=True)
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid:
            (PIDS / name).write_text(f"{pid} {_born(pid)}")
            os._exit(0)
        log = os.open(f"{LOGS}/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.chdir("/")
        if account.pw_uid:
            ns.become(account.pw_uid, account.pw_gid)
        try:
            os.execvpe(one.argv[0], one.argv, env)
        finally:
            os._exit(127)
    os.wait()


def wait_for(what: str, question: Callable[[], bool], deadline: float, *, needs: Sequence[str] = ()) -> None:
    """Ask until the answer is yes; NotUp with one sentence when it isn't in time, or a needed daemon has ended."""
    while not question():
        ended = [name for name in needs if _pid_of(name) is None]
        if ended:
            raise NotUp(f"{what} ({ended[0]} ended).")
        if time.monotonic() > deadline:
            raise NotUp(f"{what} (waited too long).")
        time.sleep(0.05)


def answers(*argv: str) -> str | None:
    """What a command prints; None when it fails."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def node_states() -> dict[str, str]:
    """The state of every node as sinfo prints it; empty while nobody answers."""
    lines = (answers("sinfo", "-h", "-N", "-o", "%N %T") or "").splitlines()
    return {name: state for name, _, state in (line.partition(" ") for line in lines)}


def all_idle() -> bool:
    states = node_states()
    return len(states) == len(conf_slurm.NODES) and set(states.values()) == {"idle"}


def boot(timeout_s: float) -> int:
    """Start every daemon in order and wait until jobs can run."""
    began = time.monotonic()
    deadline = began + timeout_s
    accounting = _has_accounting()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # An address besides 127.0.0.1: without one the resolver believes that this machine speaks no protocol at all.
    subprocess.run(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"], check=True)
    for path, owner in {
        "/run/munge": "munge",
        "/run/mysqld": "mysql",
        "/run/slurm": "slurm",
        "/run/slurmrestd": "daemon",
        "/run/sshd": "root",
        "/run/user/1000": "kb",
        "/run/user/1001": "other",
        "/var/spool/slurmctld": "slurm",
        "/var/spool/slurmd": "root",
    }.items():
        Path(path).mkdir(mode=0o755, parents=True, exist_ok=True)
        shutil.chown(path, owner)
    shutil.chown("/etc/slurm/slurmdbd.conf", "slurm")
    _make_token_key(Path(conf_slurm.JWT_KEY))
    for uid in (1000, 1001):
        Path(f"/run/user/{uid}").chmod(0o700)
    Path("/run/mariadbd").symlink_to("mysqld")  # where sid's client library looks
    spawn("munged")
    if accounting:
        spawn("mariadb")
    _let_kb_in()
    spawn("sshd")
    munge = Path("/run/munge/munge.socket.2")
    wait_for("munged did not start", munge.exists, deadline, needs=["munged"])
    if accounting:
        database = Path("/run/mysqld/mysqld.sock")
        wait_for("MariaDB did not start", database.exists, deadline, needs=["mariadb"])
        spawn("slurmdbd")
        wait_for("slurmdbd did not start", lambda: _listens(6819), deadline, needs=["slurmdbd"])
        _add_accounts(deadline)
    spawn("slurmctld")
    ping = ("scontrol", "ping")
    wait_for("slurmctld does not answer", lambda: answers(*ping) is not None, deadline, needs=["slurmctld"])
    by_token = "slurmrestd" in daemons()
    if by_token:
        spawn("slurmrestd")
    for node in conf_slurm.NODES:
        spawn(f"slurmd:{node.name}")
    wait_for("Not every node became idle", all_idle, deadline, needs=list(daemons()) if accounting else [])
    if accounting:
        wait_for("sacct does not answer", lambda: answers("sacct", "-n", "-X") is not None, deadline)
    wait_for("sshd does not answer", lambda: _listens(22), deadline)
    if by_token:
        wait_for("slurmrestd does not answer", lambda: _listens(conf_slurm.REST_PORT), deadline, needs=["slurmrestd"])
    print(f"up after {time.monotonic() - began:.1f} s")
    return 0


def _add_accounts(deadline: float) -> None:
    """Tell the accounting who may run: with associations enforced, nobody else can."""
    root = conf_slurm.CLUSTER
    orders = (
        ("add", "cluster", root),
        ("add", "account", conf_slurm.ACCOUNT, f"Cluster={root}"),
        ("add", "user", "kb,other,root", f"Account={conf_slurm.ACCOUNT}", f"Cluster={root}"),
    )
    for order in orders:
        what = f"sacctmgr could not {' '.join(order[:3])}"
        wait_for(what, lambda order=order: answers("sacctmgr", "-i", *order) is not None, deadline)  # type: ignore[misc]


def _make_token_key(key: Path) -> None:
    """The secret that signs tokens: Slurm's user alone may read it."""
    key.write_bytes(os.urandom(32))
    key.chmod(0o400)
    shutil.chown(key, "slurm")


def _let_kb_in() -> None:
    """Keys for kb, to this machine and no other."""
    account = pwd.getpwnam("kb")
    folder = Path(account.pw_dir) / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    key = folder / "id_ed25519"
    if not Path("/etc/ssh/ssh_host_ed25519_key").exists():
        subprocess.run(["ssh-keygen", "-q", "-A"], check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "kb", "-f", str(key)], check=True)
    shutil.copyfile(key.with_suffix(".pub"), folder / "authorized_keys")
    host = Path("/etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
    (folder / "known_hosts").write_text(f"localhost,127.0.0.1,{conf_slurm.HOST} {host[0]} {host[1]}\n")
    for path in (folder, *folder.iterdir()):
        os.chown(path, account.pw_uid, account.pw_gid)


def control(action: str, name: str, timeout_s: float) -> int:
    """Do something to a daemon; comes back when it's done (started slurmctld answers, stopped processes are gone)."""
    deadline = time.monotonic() + timeout_s
    if action == "wait":
        wait_for("Not every node became idle", all_idle, deadline)
        return 0
    if name.startswith("node:"):  # a machine that loses power: its daemon and every process of its jobs at once
        if action != "kill":
            raise NotUp("A whole node can only be killed (start it again with: start slurmd:NODE).")
        node = name.removeprefix("node:")
        control("kill", f"slurmd:{node}", timeout_s)
        power.cut(node)
        return 0
    if name not in daemons() | grown():
        raise NotUp(f"There is no daemon {name}: {', '.join(daemons())}, node:NODE.")
    if action == "restart":
        control("stop", name, timeout_s)
        return control("start", name, timeout_s)
    if action == "start":
        spawn(name)
        if name == "slurmctld":
            wait_for("slurmctld does not answer", lambda: answers("scontrol", "ping") is not None, deadline)
        elif name == "slurmdbd":
            wait_for("slurmdbd does not answer", lambda: _listens(6819), deadline)
        elif name == "slurmrestd":
            wait_for("slurmrestd does not answer", lambda: _listens(conf_slurm.REST_PORT), deadline)
        return 0
    pid = _pid_of(name)
    if pid is None:
        return 0
    if action in ("freeze", "thaw"):
        os.kill(pid, signal.SIGSTOP if action == "freeze" else signal.SIGCONT)
        return 0
    with suppress(ProcessLookupError):  # it may be gone at the first of the two
        os.kill(pid, signal.SIGKILL if action == "kill" else signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)  # a frozen one can't obey
    wait_for(f"{name} did not end", lambda: _pid_of(name) is None, deadline)
    return 0


def inside_status() -> dict[str, Any]:
    """What runs, from within."""
    return {"daemons": {name: _pid_of(name) for name in daemons() | grown()}, "nodes": node_states()}


# ------------------------------------------------------------------------------------------------------------ commands


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="A real Slurm cluster on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, about: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=about)
        one.add_argument("--dir", type=Path, required=True, help="the cluster's folder")
        return one

    one = command("start", "bring it up (nothing to do when it's up)")
    one.add_argument("--slurm", choices=sorted(tree.RECIPES), default=tree.DEFAULT_SLURM)
    one.add_argument(
        "--min-job-age", type=int, default=300, metavar="S", help="after how long ended jobs are forgotten"
    )
    one.add_argument("--slurmd-timeout", type=int, default=20, metavar="S", help="after how long a silent node is down")
    one.add_argument("--cgroups", action="store_true", help="limits by control groups: memory, devices, processes")
    one.add_argument("--private-tmp", action="store_true", help="job_container/tmpfs: a /tmp and /dev/shm per job")
    one.add_argument("--no-accounting", action="store_true", help="without slurmdbd: sacct doesn't work")
    one.add_argument("--conf", action="append", default=[], metavar="LINE", help="one more line of slurm.conf")
    one.add_argument("--with-pid", type=int, metavar="PID", help="end the cluster when this process is gone")
    one.add_argument("--torch", action="store_true", help="also the image with torch for CPUs")
    one.add_argument("--timeout", type=float, default=180, metavar="S")
    one.add_argument("--json", action="store_true")
    for name in ("exec", "shell"):
        one = command(name, "run a command inside" if name == "exec" else "look around inside")
        one.add_argument("--user", default="kb")
        one.add_argument("--cwd")
        one.add_argument("--env", action="append", default=[], metavar="KEY=VALUE")
        one.add_argument("argv", nargs="*", metavar="CMD")
    one = command("ctl", "make a daemon fail, or work again")
    one.add_argument("action", choices=["start", "stop", "restart", "kill", "freeze", "thaw", "wait"])
    one.add_argument("daemon", nargs="?", default="", help="slurmctld, slurmdbd, slurmd:NODE, node:NODE, sshd, …")
    one.add_argument("--timeout", type=float, default=60, metavar="S")
    one = command("status", "what runs")
    one.add_argument("--json", action="store_true")
    one = command("stop", "end it and remove what it wrote")
    one.add_argument("--keep-logs", action="store_true")
    return parser


def _what_next(folder: Path) -> str:
    """What to type once the cluster is up."""
    me = f"python3 {Path(__file__).resolve().relative_to(CHECKOUT)}"
    usual = folder.resolve() == CHECKOUT / ".cluster" / "interactive"
    inside = "make cluster-shell" if usual else f"{me} shell --dir {folder}"
    return "\n".join(
        [
            f"  {inside:44} a shell on its login node, as kb; there, for example:",
            "      sinfo; sbatch --gres=gpu:h100:1 --wrap='hostname; env | grep SLURM'; squeue",
            "      kbslurm doctor --site /kb/src/tests/cluster/site.toml --live",
            f"  {f'{me} status --dir {folder}':44} what runs",
            f"  {f'{me} ctl --dir {folder} kill node:h1':44} a node loses power; start slurmd:h1 brings it back",
            f"  {'make cluster-down' if usual else f'{me} stop --dir {folder}':44} the end of it",
        ]
    )


def _told(given: argparse.Namespace, call: list[str]) -> int:
    """Run one of this file's own commands inside, as root."""
    return enter(given.dir, [*INSIDE, *call], user="root", cwd="/", env={})


def _perform(given: argparse.Namespace) -> int:
    match given.command:
        case "start":
            options = conf_slurm.Options(
                slurm=given.slurm,
                accounting=not given.no_accounting,
                min_job_age_s=given.min_job_age,
                slurmd_timeout_s=given.slurmd_timeout,
                cgroups=given.cgroups,
                private_tmp=given.private_tmp,
                extra=tuple(given.conf),
            )
            began = time.monotonic()
            cluster = start(given.dir, options, with_pid=given.with_pid, torch=given.torch, timeout_s=given.timeout)
            tree.say(f"Slurm {options.slurm} is up in {given.dir} ({time.monotonic() - began:.1f} s)")
            if given.json:
                print(json.dumps(asdict(cluster)))
            else:
                print(_what_next(given.dir))
            return 0
        case "exec" | "shell":
            env = dict(one.partition("=")[::2] for one in given.env)
            return enter(given.dir, given.argv or ["bash", "-i"], user=given.user, cwd=given.cwd, env=env)
        case "ctl":
            return _told(given, ["__ctl", given.action, given.daemon, str(given.timeout)])
        case "status":
            cluster_up = recorded(given.dir.resolve())
            if cluster_up is None:
                print(json.dumps({"up": False}) if given.json else f"No cluster is running in {given.dir}.")
                return 0 if given.json else 1
            sys.stdout.flush()
            return _told(given, ["__status", "json" if given.json else "text", json.dumps(asdict(cluster_up))])
        case _:
            ended = stop(given.dir, keep_logs=given.keep_logs)
            tree.say(f"the cluster in {given.dir} is gone" if ended else f"no cluster was running in {given.dir}")
            return 0


def _perform_inside(call: str, rest: Sequence[str]) -> int:
    """The calls that this file makes of itself."""
    match call:
        case "__launch":
            return _launch_in_namespaces(rest[0])
        case "__first":
            return first(rest)
        case "__boot":
            return boot(float(rest[0]))
        case "__ctl":
            return control(rest[0], rest[1], float(rest[2]))
        case _:
            state = {"up": True, **json.loads(rest[1]), **inside_status()}
            if rest[0] == "json":
                print(json.dumps(state))
                return 0
            print(f"Slurm {state['options']['slurm']} is up; its first process is {state['pid']}.")
            for name, pid in state["daemons"].items():
                print(f"  {name:12} {pid or 'not running'}")
            for name, condition in state["nodes"].items():
                print(f"  {name:12} {condition}")
            return 0


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    if given and given[0].startswith("__"):
        return tree.guarded(lambda: _perform_inside(given[0], given[1:]))
    parsed = _arguments().parse_args(given)
    return tree.guarded(lambda: _perform(parsed))


if __name__ == "__main__":
    raise SystemExit(main())
