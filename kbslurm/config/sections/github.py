"""[github]: runs on GitHub Actions, and signing in with GitHub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbslurm.config import toml_file
from kbslurm.config.sections.checks import slots_by_gpu, web_address
from kbslurm.domain import contest
from kbslurm.errors import Invalid, Misconfigured

KEPT_APART = 2  # the isolation level from which a submission can't reach anything of its judge


def _labels(gpus: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    for gpu, labels in gpus.items():
        contest.gpu_name(gpu)
        if not labels or not all(re.fullmatch(r"[A-Za-z0-9._@ -]{1,100}", label) for label in labels):
            raise Invalid(f"{gpu} has no runner labels", hint='Write gpus = { H100 = ["self-hosted", "h100"] }.')
    return dict(gpus)


def _repository(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9_-]{1,39}/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}", text):
        raise Invalid(f"{text!r} isn't a valid repository", hint='Write "owner/name".')
    return text


def _branch(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}", text):
        raise Invalid(f"{text!r} isn't a valid branch name", hint='Write "main".')
    return text


@dataclass(frozen=True, kw_only=True)
class GithubSection:
    """GitHub Actions. Its secrets are GITHUB_TOKEN (several, separated by spaces, are used in turn) and
    KBSLURM_RUN_KEY, which the repository has under the same name; the one for signing in with GitHub is
    CLI_GITHUB_CLIENT_SECRET.
    """

    repository: str = field(
        default="",
        metadata={"doc": "The private repository whose runners are used: owner/name.", "check": _repository},
    )
    gpus: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict,
        metadata={"doc": "The runner's labels, by GPU type; empty: no runs go there.", "check": _labels},
    )
    slots: Mapping[str, int] = field(
        default_factory=dict,
        metadata={"doc": "How many runs at the same time, by GPU type (default: 4 each).", "check": slots_by_gpu},
    )
    branch: str = field(
        default="main", metadata={"doc": "The repository's branch with workflow and harness.", "check": _branch}
    )
    api_url: str = field(
        default="https://api.github.com",
        metadata={"doc": "The address of its API; GITHUB_API_URL takes precedence.", "check": web_address},
    )
    python: str = field(
        default="python3",
        metadata={
            "doc": "The Python command for the harness on the runner; python3 is the first there of at least 3.11."
        },
    )
    staff_only: bool = field(default=False, metadata={"doc": "Only the hosts' own submissions run there."})
    ranked: bool = field(
        default=True, metadata={"doc": "Leaderboard runs go there too; false: only tests, benchmarks and profiles."}
    )
    min_isolation: int = field(
        default=2,
        metadata={
            "doc": "The minimum isolation level for a run there. Below 2 only with ranked = false or staff_only.",
            "least": 0,
            "most": 3,
        },
    )
    ranked_min_isolation: int = field(
        default=2, metadata={"doc": "The minimum isolation level for a run from there to rank.", "least": 0, "most": 3}
    )
    poll_s: float = field(default=15.0, metadata={"doc": "How often its runs are checked.", "least": 0.05})

    client_id: str = field(
        default="", metadata={"doc": "Client ID of the OAuth application; empty: no signing in with GitHub."}
    )
    oauth_url: str = field(default="https://github.com", metadata={"doc": "GitHub's address.", "check": web_address})
    oauth_api_url: str = field(
        default="https://api.github.com", metadata={"doc": "The address of its API.", "check": web_address}
    )


def check_github(github: GithubSection, file: toml_file.TomlFile) -> None:
    """On a runner, an unisolated submission has the same user as the step that seals reports with the repository's key,
    and with that key it could forge reports of anything that runs there, at any level."""
    if github.gpus and github.ranked and not github.staff_only and github.min_isolation < KEPT_APART:
        raise Misconfigured(
            f"below isolation level {KEPT_APART} a submission can tamper with"
            " the step on GitHub's runner that seals reports, so nothing may rank from there",
            file=file.path,
            line=file.line(("github", "min_isolation")),
            key="github.min_isolation",
            fix=f"Leave it at {KEPT_APART}, or write ranked = false (only tests, benchmarks and profiles go there), or"
            " staff_only = true.",
        )
