"""The way to a login node behind ssh: whether it is open, and what to type to open it.

With `by_hand` somebody logs in with a second factor and leaves that connection open. We use it and never make one of
our own, so that no failed login is ever counted against the account.
"""

from __future__ import annotations

import re
import shlex

from kbslurm.domain.site import Submission

FAILED = 255  # ssh's own status, not that of the command there
NOT_OPEN = "kbslurm: no connection is open"
# Run only if there is no open connection: then ssh gives up, without a word to the host.
INSTEAD_OF_CONNECTING = f"sh -c 'echo \"{NOT_OPEN}\" >&2'"
# Only what ssh says before the command could have been sent; a connection that broke later proves nothing.
_BEFORE = re.compile(
    r"Permission denied \(|Host key verification failed|Could not resolve hostname|ssh: connect to host"
    r"|Too many authentication failures|REMOTE HOST IDENTIFICATION HAS CHANGED"
)
_AMID = re.compile(r"mux_client|client_loop|Connection reset|Broken pipe")


def lapse_in(submit: Submission, status: int | None, text: str) -> str:
    """Why ssh certainly didn't reach the host, and what to type; empty if it did, or may have."""
    if submit.via != "ssh" or status != FAILED or _AMID.search(text):
        return ""
    if submit.by_hand and NOT_OPEN in text:
        return f"the login to {submit.host} has lapsed; log in again with: {open_command(submit)}"
    if found := _BEFORE.search(text):
        line = next(line for line in text.splitlines() if found[0] in line)
        return f"ssh can't log in to {submit.host} ({line.strip()[:200]}); try it with: {try_command(submit)}"
    return ""


def open_command(submit: Submission) -> str:
    """Opens the connection that we share, asking whatever the host asks, and leaves it in the background."""
    options = ("ServerAliveInterval=30", "ServerAliveCountMax=4", f"ControlPath={submit.control_path}")
    return shlex.join(["ssh", "-fNM", *(word for option in options for word in ("-o", option)), *_where(submit)])


def try_command(submit: Submission) -> str:
    """Shows what ssh says, by hand."""
    return shlex.join(["ssh", *_where(submit), "true"])


def _where(submit: Submission) -> list[str]:
    return [
        *(("-i", submit.identity) if submit.identity else ()),
        *(("-J", submit.proxy_jump) if submit.proxy_jump else ()),
        *(("-l", submit.user) if submit.user else ()),
        *(("-p", str(submit.port)) if submit.port != 22 else ()),
        submit.host,
    ]
