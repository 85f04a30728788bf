"""[github]: runs on GitHub Actions, and signing in with GitHub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbslurm.config import toml_file
from kbslurm.config.sections.checks import slots_by_gpu, web_address
from kbslurm.domain import contest
from kbslurm.errors import Invalid, Misconfigured

KEPT_APART = 2  # the isolation level from which a submission reaches nothing of its judge's


def _labels(gpus: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    for gpu, labels in gpus.items():
        contest.gpu_name(gpu)
        if not labels or not all(re.fullmatch(r"[A-Za-z0-9._@ -]{1,100}", label) for label in labels):
            raise Invalid(f"{gpu} has no runner labels", hint='Write gpus = { H100 = ["self-hosted", "h100"] }.')
    return dict(gpus)


def _repository(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9_-]{1,39}/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}", text):
        raise Invalid(f"{text!r} is no repository", hint='Write "owner/name".')
    return text


def _branch(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}", text):
        raise Invalid(f"{text!r} is no branch", hint='Write "main".')
    return text


@dataclass(frozen=True, kw_only=True)
class GithubSection:
    """GitHub Actions. Its secrets are GITHUB_TOKEN (several with spaces between them: they are used in turn) and
    KBSLURM_RUN_KEY, which the repository has under the same name; that of signing on with GitHub
    CLI_GITHUB_CLIENT_SECRET.
    """

    repository: str = field(
        default="",
        metadata={"doc": "The private repository whose runners are lent: owner/name.", "check": _repository},
    )
    gpus: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict,
        metadata={"doc": "The runner's labels, by GPU type; empty: no runs go there.", "check": _labels},
    )
    slots: Mapping[str, int] = field(
        default_factory=dict,
        metadata={"doc": "How many runs at once, by GPU type; 4 where not said.", "check": slots_by_gpu},
    )
    branch: str = field(
        default="main", metadata={"doc": "The repository's branch with workflow and harness.", "check": _branch}
    )
    api_url: str = field(
        default="https://api.github.com",
        metadata={"doc": "Where its API is; GITHUB_API_URL goes first.", "check": web_address},
    )
    python: str = field(default="python3", metadata={"doc": "What the harness runs with, on the runner."})
    staff_only: bool = field(default=False, metadata={"doc": "Only the hosts' own submissions run there."})
    ranked: bool = field(
        default=True, metadata={"doc": "Leaderboard runs go there, too; false: only tests, benchmarks and profiles."}
    )
    min_isolation: int = field(
        default=2,
        metadata={
            "doc": "Below this isolation level nothing runs there. Under 2 only with ranked = false or staff_only.",
            "least": 0,
            "most": 3,
        },
    )
    ranked_min_isolation: int = field(
        default=2, metadata={"doc": "The isolation level from which a run ranks from there.", "least": 0, "most": 3}
    )
    poll_s: float = field(default=15.0, metadata={"doc": "How often its runs are looked at.", "least": 0.05})

    client_id: str = field(default="", metadata={"doc": "Of the OAuth application; empty: no sign-on with GitHub."})
    oauth_url: str = field(default="https://github.com", metadata={"doc": "Where GitHub is.", "check": web_address})
    oauth_api_url: str = field(
        default="https://api.github.com", metadata={"doc": "Where its API is.", "check": web_address}
    )


def check_github(github: GithubSection, file: toml_file.TomlFile) -> None:
    """A runner has one user for a submission that isn't kept apart, and for the step that seals every report with the
    repository's one key: who has that key may make reports of whatever ran there, at any level."""
    if github.gpus and github.ranked and not github.staff_only and github.min_isolation < KEPT_APART:
        raise Misconfigured(
            f"below isolation level {KEPT_APART} a submission can rewrite the step of GitHub's runner that seals"
            " reports, so nothing may rank from there",
            file=file.path,
            line=file.line(("github", "min_isolation")),
            key="github.min_isolation",
            fix=f"Leave it at {KEPT_APART}; or write ranked = false (only tests, benchmarks and profiles go there), or"
            " staff_only = true.",
        )
