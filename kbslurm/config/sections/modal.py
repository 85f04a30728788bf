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
        raise Invalid(f"{text!r} is no type of GPU at Modal", hint='Like "A100-80GB", "H100!", or "none" for no GPU.')
    return text


def _modal_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,50}", text):
        raise Invalid(f"{text!r} can't be an app's name", hint="Letters, digits, and . _ - in between.")
    return text


def _python(text: str) -> str:
    if not re.fullmatch(r"3\.(1[1-9])", text):
        raise Invalid(f"{text!r} is no Python that the harness runs with", hint='Write "3.12"; 3.11 or newer.')
    return text


@dataclass(frozen=True, kw_only=True)
class ModalGpuSection:
    """The function of one GPU type."""

    slots: int = field(default=4, metadata={"doc": "How many runs at once.", "least": 1})
    type: str = field(
        default="", metadata={"doc": "What Modal calls it; empty: the same; none: no GPU.", "check": _modal_type}
    )
    count: int = field(
        default=1, metadata={"doc": "How many GPUs a run has, and one may ask for.", "least": 1, "most": 8}
    )
    timeout_s: int = field(
        default=1800, metadata={"doc": "After so many seconds Modal ends a run.", "least": 60, "most": 86_400}
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
    app: str = field(default="kbslurm", metadata={"doc": "What the app is called there.", "check": _modal_name})
    environment: str = field(default="", metadata={"doc": "The workspace's environment; empty: its default."})
    image: str = field(default="", metadata={"doc": "A registry's image that runs are in; empty: a small Debian."})
    python: str = field(default="3.12", metadata={"doc": "The Python that is put into it.", "check": _python})
    packages: tuple[str, ...] = field(default=(), metadata={"doc": "What pip installs into it."})
    start_within_s: float = field(
        default=900.0, metadata={"doc": "So long a run may wait for a GPU there.", "least": 10, "most": 86_400}
    )
    staff_only: bool = field(default=False, metadata={"doc": "Only the hosts' own submissions run there."})
    min_isolation: int = field(
        default=1, metadata={"doc": "Below this isolation level nothing runs there.", "least": 0, "most": 3}
    )
    ranked_min_isolation: int = field(
        default=2, metadata={"doc": "The isolation level from which a run ranks from there.", "least": 0, "most": 3}
    )
    poll_s: float = field(default=10.0, metadata={"doc": "How often open runs are looked at.", "least": 0.05})
    api_url: str = field(
        default="https://api.modal.com",
        metadata={"doc": "Where its API is; MODAL_SERVER_URL goes first.", "check": web_address},
    )
