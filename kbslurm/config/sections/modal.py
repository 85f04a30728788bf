"""[modal]: runs on Modal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbslurm.config.sections.checks import web_address
from kbslurm.domain import contest
from kbslurm.errors import Invalid


def _modal_type(text: str) -> str:
    if text and not re.fullmatch(r"none|[A-Za-z0-9-]{1,40}(\+|!)?", text):
        raise Invalid(
            f"Modal has no GPU type {text!r}", hint='Write a type like "A100-80GB" or "H100!", or "none" for no GPU.'
        )
    return text


def _modal_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,50}", text):
        raise Invalid(f"{text!r} isn't a valid app name", hint="Use letters and digits, and . _ - in between.")
    return text


def _python(text: str) -> str:
    if not re.fullmatch(r"3\.(1[1-9])", text):
        raise Invalid(
            f"the harness doesn't support Python {text!r}", hint='Write a version from "3.11" on, like "3.12".'
        )
    return text


@dataclass(frozen=True, kw_only=True)
class ModalGpuSection:
    """The function of one GPU type."""

    slots: int = field(default=4, metadata={"doc": "How many runs at the same time.", "least": 1})
    type: str = field(
        default="", metadata={"doc": "Modal's name for it; empty: the same; none: no GPU.", "check": _modal_type}
    )
    count: int = field(default=1, metadata={"doc": "How many GPUs a run has.", "least": 1, "most": 8})
    timeout_s: int = field(
        default=3600, metadata={"doc": "Modal kills a run after this many seconds.", "least": 60, "most": 86_400}
    )
    cpu: float = field(default=8.0, metadata={"doc": "How many cores.", "least": 0.125, "most": 256})
    memory_gb: float = field(default=32.0, metadata={"doc": "How much memory.", "least": 0.25, "most": 4096})


def _modal_gpus(gpus: Mapping[str, ModalGpuSection]) -> Mapping[str, ModalGpuSection]:
    for gpu in gpus:
        contest.gpu_name(gpu)
    return dict(gpus)


@dataclass(frozen=True, kw_only=True)
class ModalSection:
    """Modal. Its secrets are MODAL_TOKEN_ID and MODAL_TOKEN_SECRET."""

    gpus: Mapping[str, ModalGpuSection] = field(
        default_factory=dict, metadata={"doc": "One function per GPU type; empty: no runs there.", "check": _modal_gpus}
    )
    app: str = field(default="kbslurm", metadata={"doc": "The app's name there.", "check": _modal_name})
    environment: str = field(default="", metadata={"doc": "The workspace's environment; empty: its default."})
    image: str = field(default="", metadata={"doc": "An image from a registry for the runs; empty: a small Debian."})
    python: str = field(default="3.12", metadata={"doc": "The Python version installed in it.", "check": _python})
    packages: tuple[str, ...] = field(default=(), metadata={"doc": "The packages that pip installs in it."})
    start_within_s: float = field(
        default=900.0, metadata={"doc": "How long a run may wait for a GPU there.", "least": 10, "most": 86_400}
    )
    staff_only: bool = field(default=False, metadata={"doc": "Only the hosts' own submissions run there."})
    min_isolation: int = field(
        default=1, metadata={"doc": "The minimum isolation level for a run there.", "least": 0, "most": 3}
    )
    ranked_min_isolation: int = field(
        default=2, metadata={"doc": "The minimum isolation level for a run from there to rank.", "least": 0, "most": 3}
    )
    poll_s: float = field(default=10.0, metadata={"doc": "How often open runs are checked.", "least": 0.05})
    api_url: str = field(
        default="https://api.modal.com",
        metadata={"doc": "The address of its API; MODAL_SERVER_URL takes precedence.", "check": web_address},
    )
