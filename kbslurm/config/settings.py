"""kbslurm.toml and the environment → one frozen value, that knows where each part of it came from.

The file is the first of: `--config`, $KBSLURM_CONFIG, ./kbslurm.toml, kbslurm/kbslurm.toml in the user's config folder;
without any, the defaults hold. Secrets never stand in it: each is an environment variable, or a file named by the
variable's name with _FILE at its end. A `.env` beside the file (or in the current directory) is read as if it were the
environment; what really is in the environment goes first.
"""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
import math
import os
import platform
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from kbslurm.config import toml_file
from kbslurm.domain import contest, placement
from kbslurm.errors import Invalid, Misconfigured

FILE_NAME = "kbslurm.toml"
SECRETS = (
    "DATABASE_URL",
    "DISCORD_TOKEN",
    "GITHUB_TOKEN",
    "KBSLURM_RUN_KEY",
    "POPCORN_ADMIN_TOKEN",
    "KBSLURM_BOT_TOKEN",
    "MODAL_TOKEN_ID",
    "MODAL_TOKEN_SECRET",
    "CLI_DISCORD_CLIENT_SECRET",
    "CLI_GITHUB_CLIENT_SECRET",
    "OIDC_CLIENT_SECRET",
)
# Where people would write a secret, and what they are told.
MISPLACED = {
    "database_url": "DATABASE_URL",
    "server.database_url": "DATABASE_URL",
    "server.admin_token": "POPCORN_ADMIN_TOKEN",
    "daemon.database_url": "DATABASE_URL",
    "discord.token": "DISCORD_TOKEN",
    "discord.client_secret": "CLI_DISCORD_CLIENT_SECRET",
    "github.client_secret": "CLI_GITHUB_CLIENT_SECRET",
    "oidc.client_secret": "OIDC_CLIENT_SECRET",
    "github.token": "GITHUB_TOKEN",
    "github.tokens": "GITHUB_TOKEN",
    "github.run_key": "KBSLURM_RUN_KEY",
    "modal.token_id": "MODAL_TOKEN_ID",
    "modal.token_secret": "MODAL_TOKEN_SECRET",
}
MASK = "********"
LOCAL = "local"
KEPT_APART = 2  # the isolation level from which a submission reaches nothing of its judge's


def _slots(slots: Mapping[str, int]) -> Mapping[str, int]:
    for gpu, free in slots.items():
        contest.gpu_name(gpu)
        if free < 1:
            raise Invalid(f"{gpu} has {free} slots", hint="At least 1, or leave it out.")
    return dict(slots)


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


def _place_name(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9@._-]{0,99}", text):
        raise Invalid(f"{text!r} can't be a place's name", hint="Letters, digits, and @ . _ - in between.")
    return text


def _address(text: str) -> str:
    host, sep, port = text.rpartition(":")
    if text and not (sep and host and port.isdecimal() and int(port) < 65536):
        raise Invalid(f"{text!r} is no address to listen on", hint='Write "127.0.0.1:8000".')
    return text


def _networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise Invalid(f"{text!r} is no address or network", hint='Write ["127.0.0.1", "10.3.0.0/16"].') from None
    return texts


def _public_url(text: str) -> str:
    if text and not re.match(r"https?://[^/]+", text):
        raise Invalid(f"{text!r} is no address of a page", hint='Write "https://kernels.example.edu".')
    return text.rstrip("/")


def _discord_id(text: str) -> str:
    if not re.fullmatch(r"[0-9]{0,20}", text):
        raise Invalid(f"{text!r} is no channel's number", hint="Discord, Developer Mode, right click, Copy Channel ID.")
    return text


def _discord_roles(roles: Mapping[str, str]) -> Mapping[str, str]:
    for number in roles:
        if not re.fullmatch(r"[0-9]{1,20}", number):
            raise Invalid(f"{number!r} is no role's number", hint="Discord, Developer Mode, right click, Copy Role ID.")
    return dict(roles)


def _gateway_url(text: str) -> str:
    if not re.match(r"wss?://[^/]+", text):
        raise Invalid(f"{text!r} is no address of a gateway", hint='Write "wss://gateway.discord.gg/".')
    return text


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
class Server:
    """The HTTP face."""

    listen: str = field(default="127.0.0.1:8000", metadata={"doc": "Host and port.", "check": _address})
    public_url: str = field(
        default="", metadata={"doc": "What others reach it by; empty: the address itself.", "check": _public_url}
    )
    metrics: str = field(
        default="",
        metadata={
            "doc": "Host and port for Prometheus, asked for no token; empty: only /metrics at `listen`, for hosts.",
            "check": _address,
        },
    )
    trusted_proxies: tuple[str, ...] = field(
        default=("127.0.0.0/8", "::1"),
        metadata={"doc": "Whose X-Forwarded-For and -Proto are believed: addresses or networks.", "check": _networks},
    )
    requests_per_minute: int = field(
        default=6000, metadata={"doc": "How many requests of one address (IPv6: /64) are answered.", "least": 60}
    )


@dataclass(frozen=True, kw_only=True)
class Local:
    """Runs on this very machine: one process per slot."""

    slots: Mapping[str, int] = field(
        default_factory=dict, metadata={"doc": "How many runs at once, by GPU type.", "check": _slots}
    )
    staff_only: bool = field(default=False, metadata={"doc": "Only the hosts' own submissions run here."})
    name: str = field(
        default="",
        metadata={
            "doc": "What runs of this machine are filed under; empty: local, or local@HOST with a DATABASE_URL."
            " Only daemons that share host and state folder may share it.",
            "check": _place_name,
        },
    )


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """The one process that walks the rows."""

    tick_s: float = field(
        default=30.0, metadata={"doc": "A look at the rows at least this often, should no news come.", "least": 0.05}
    )
    poll_s: float = field(
        default=15.0, metadata={"doc": "How often places without a rhythm of their own are looked at.", "least": 0.05}
    )
    lease_ttl_s: float = field(
        default=15.0, metadata={"doc": "A standby takes over when the leader was silent for so long.", "least": 1.0}
    )
    state_dir: Path | None = field(
        default=None,
        metadata={"doc": "Attempts' directories and the embedded database; default: the user's state folder."},
    )
    metrics: str = field(default="", metadata={"doc": "Host and port for Prometheus; empty: none.", "check": _address})
    local: Local = field(default_factory=Local)


def _prices(prices: Mapping[str, float]) -> Mapping[str, float]:
    for gpu, price in prices.items():
        contest.gpu_name(gpu)
        if not 0 <= price < math.inf:
            raise Invalid(f"{gpu} costs {price:g} an hour", hint="What an hour of one GPU costs, 0 or more.")
    return dict(prices)


def _classes(classes: Mapping[str, str]) -> Mapping[str, str]:
    for gpu, name in classes.items():
        contest.gpu_name(gpu)
        if not name.strip():
            raise Invalid(f"{gpu} has a class without a name", hint='Write H100 = "H100 SXM".')
    return {gpu: name.strip() for gpu, name in classes.items()}


def _bounds(bounds: Mapping[str, float]) -> Mapping[str, float]:
    for board, most in bounds.items():
        if not 0 <= most < math.inf:
            raise Invalid(f"board {board} may spend {most:g} a month", hint="0 or more.")
    return {contest.board_name(board): most for board, most in bounds.items()}


def _team_bounds(bounds: Mapping[str, float]) -> Mapping[str, float]:
    for team, most in bounds.items():
        if not 0 <= most < math.inf:
            raise Invalid(f"team {team} may spend {most:g} a month", hint="0 or more.")
    return {contest.team_name(team): most for team, most in bounds.items()}


@dataclass(frozen=True, kw_only=True)
class PlacePolicy:
    """A place as the placement policy sees it."""

    role: placement.Role | None = field(
        default=None,
        metadata={"doc": "Whether runs go there first, or only for overflow; default: GitHub and Modal are overflow."},
    )
    classes: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "doc": "The class of its GPUs, by type. Boards never mix classes. Default: the type's name at home, a class"
            " of its own elsewhere.",
            "check": _classes,
        },
    )
    cost_per_gpu_hour: Mapping[str, float] = field(
        default_factory=dict, metadata={"doc": "What an hour of one GPU costs, by type.", "check": _prices}
    )


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What overflow may cost in a month (UTC). What is open counts at its most."""

    month: float | None = field(default=None, metadata={"doc": "In all; not set: no bound.", "least": 0})
    boards: Mapping[str, float] = field(
        default_factory=dict, metadata={"doc": "For the runs of a board; others: no bound.", "check": _bounds}
    )
    team: float | None = field(
        default=None, metadata={"doc": "For the runs of each team; not set: no bound.", "least": 0}
    )
    teams: Mapping[str, float] = field(
        default_factory=dict,
        metadata={"doc": "For the runs of a team, instead of what each has.", "check": _team_bounds},
    )
    currency: str = field(default="EUR", metadata={"doc": "What all money here is in."})


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the hosts decided."""

    overflow: placement.Overflow = field(
        default_factory=partial(placement.Overflow, when="when_down"),
        metadata={
            "doc": 'When other places than the cluster take runs: never, when_down, or { when_wait_over = "10m" }.',
            "reads": placement.overflow_of,
            "schema": {
                "anyOf": [
                    {"enum": ["never", "when_down"]},
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["when_wait_over"],
                        "properties": {"when_wait_over": {"type": "string"}},
                    },
                ],
                "default": "when_down",
            },
        },
    )
    other_class: placement.OtherClass = field(
        default="refuse",
        metadata={"doc": "Leaderboard runs on another class of GPU than the board's: refuse, or run them unranked."},
    )
    overflow_boards: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict,
        metadata={
            "doc": "Which overflow places a board's runs may use; boards that aren't named may use all.",
            "check": placement.allowed_places,
        },
    )
    classes: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "doc": "The class of GPU that boards are about, by type; default: the first home place's.",
            "check": _classes,
        },
    )
    budget: Budget = field(default_factory=Budget)
    shadow: float = field(
        default=0.0,
        metadata={
            "doc": "Which fraction of the runs that rank at home is measured at an overflow place, too: unranked and"
            " within the budget, to see how far apart the places are.",
            "least": 0,
            "most": 1,
        },
    )
    places: Mapping[str, PlacePolicy] = field(
        default_factory=dict, metadata={"doc": "More about places, by their names."}
    )
    ranked_min_isolation: int = field(
        default=2, metadata={"doc": "The isolation level from which a run ranks on a new board.", "least": 0, "most": 3}
    )


@dataclass(frozen=True, kw_only=True)
class Discord:
    """The Discord face. Its secret is DISCORD_TOKEN; that of signing on with Discord CLI_DISCORD_CLIENT_SECRET.

    The bot shows itself to the API with KBSLURM_BOT_TOKEN; `kbslurm up` makes one where none is set.
    """

    client_id: str = field(default="", metadata={"doc": "Of the OAuth application; empty: no sign-on with Discord."})
    oauth_url: str = field(default="https://discord.com", metadata={"doc": "Where Discord is.", "check": _public_url})
    channel: str = field(
        default="",
        metadata={
            "doc": "Number of the channel where records, boards, deadlines and the day are announced; empty: nowhere.",
            "check": _discord_id,
        },
    )
    staff_channel: str = field(
        default="",
        metadata={
            "doc": "Number of the channel where operators' errors are told; empty: nowhere.",
            "check": _discord_id,
        },
    )
    roles: Mapping[str, Literal["host", "creator"]] = field(
        default_factory=dict,
        metadata={
            "doc": "What Discord roles give whoever has them: host (the hosts' commands) or creator (new boards),"
            " by the role's number.",
            "check": _discord_roles,
        },
    )
    api_url: str = field(
        default="https://discord.com/api/v10", metadata={"doc": "Where the bot's API is.", "check": _public_url}
    )
    gateway_url: str = field(
        default="wss://gateway.discord.gg/", metadata={"doc": "Where the bot's gateway is.", "check": _gateway_url}
    )


@dataclass(frozen=True, kw_only=True)
class Github:
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
        default_factory=dict, metadata={"doc": "How many runs at once, by GPU type; 4 where not said.", "check": _slots}
    )
    branch: str = field(
        default="main", metadata={"doc": "The repository's branch with workflow and harness.", "check": _branch}
    )
    api_url: str = field(
        default="https://api.github.com",
        metadata={"doc": "Where its API is; GITHUB_API_URL goes first.", "check": _public_url},
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
    oauth_url: str = field(default="https://github.com", metadata={"doc": "Where GitHub is.", "check": _public_url})
    oauth_api_url: str = field(
        default="https://api.github.com", metadata={"doc": "Where its API is.", "check": _public_url}
    )


@dataclass(frozen=True, kw_only=True)
class Oidc:
    """A university's single sign-on (OpenID Connect). Its secret is OIDC_CLIENT_SECRET."""

    issuer: str = field(default="", metadata={"doc": "The provider's address; empty: none.", "check": _public_url})
    client_id: str = field(default="", metadata={"doc": "What the provider calls us."})
    name: str = field(default="your university", metadata={"doc": "What people know it by."})


@dataclass(frozen=True, kw_only=True)
class ModalGpu:
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


def _modal_gpus(gpus: Mapping[str, ModalGpu]) -> Mapping[str, ModalGpu]:
    for gpu in gpus:
        contest.gpu_name(gpu)
    return dict(gpus)


@dataclass(frozen=True, kw_only=True)
class Modal:
    """Modal. Its secrets are MODAL_TOKEN_ID and MODAL_TOKEN_SECRET."""

    gpus: Mapping[str, ModalGpu] = field(
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
        metadata={"doc": "Where its API is; MODAL_SERVER_URL goes first.", "check": _public_url},
    )


@dataclass(frozen=True, kw_only=True)
class Sites:
    """Which sites' files are used."""

    use: tuple[str, ...] = field(
        default=(),
        metadata={"doc": "Names of site-configs/*.toml, or paths of such files; earlier ones are preferred."},
    )
    dir: Path | None = field(default=None, metadata={"doc": "Where they are; default: site-configs/ beside this file."})


@dataclass(frozen=True, kw_only=True)
class _File:
    """kbslurm's configuration."""

    server: Server = field(default_factory=Server)
    daemon: Daemon = field(default_factory=Daemon)
    policy: Policy = field(default_factory=Policy)
    discord: Discord = field(default_factory=Discord)
    github: Github = field(default_factory=Github)
    oidc: Oidc = field(default_factory=Oidc)
    modal: Modal = field(default_factory=Modal)
    sites: Sites = field(default_factory=Sites)


class Secret:
    """A text that doesn't show itself when it, or what holds it, is printed by mistake."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Give it away."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return MASK


@dataclass(frozen=True, kw_only=True)
class Config(_File):
    """All that is configured. `file` is the kbslurm.toml in use; `origins` says where each dotted key came from."""

    file: Path | None = None
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def database_url(self) -> str | None:
        """Where the database is; None: an embedded one of our own, below `state_dir`."""
        return self.secret("DATABASE_URL")

    @property
    def state_dir(self) -> Path:
        """Where this installation keeps what isn't in the database. Nothing is made by asking."""
        return self.daemon.state_dir or default_state_dir(os.environ)

    @property
    def local_name(self) -> str:
        """What this machine is called as a place. A database that others reach may have runs of other machines, too:
        there the name says whose they are, so that no daemon looks for them where they can't be."""
        if self.daemon.local.name or self.database_url is None:
            return self.daemon.local.name or LOCAL
        host = re.sub(r"[^A-Za-z0-9._-]", "-", platform.node())
        return f"{LOCAL}@{host}" if host else LOCAL

    @property
    def sites_dir(self) -> Path | None:
        """The folder of the sites' files, when the configuration says one or stands beside one."""
        if self.sites.dir is not None or self.file is None:
            return self.sites.dir
        beside = self.file.parent / "site-configs"
        return beside if beside.is_dir() else None

    def secret(self, name: str) -> str | None:
        """The secret of this environment variable, in clear."""
        found = self.secrets.get(name)
        return None if found is None else found.reveal()


def load(path: Path | None = None, env: Mapping[str, str] | None = None, *, cwd: Path | None = None) -> Config:
    """What holds here and now, or Misconfigured at file, line and key."""
    env = os.environ if env is None else env
    here = Path.cwd() if cwd is None else cwd
    file = _found(path, env, here)
    around, lines = _with_dotenv(env, (file.parent if file else here) / ".env")
    known = toml_file.parsed("", Path(FILE_NAME)) if file is None else toml_file.read(file)
    hints = {key: f"Secrets never stand here: set {name} or {name}_FILE." for key, name in MISPLACED.items()}
    told = known.built(_File, hints=hints)
    origins = {key: f"{known.path}:{known.line(_path_of(key)) or 1}" for key, _ in _leaves(told) if _is_in(known, key)}
    if around.get("KBSLURM_STATE_DIR"):
        state_dir = toml_file.resolved(around["KBSLURM_STATE_DIR"], here)
        told = dataclasses.replace(told, daemon=dataclasses.replace(told.daemon, state_dir=state_dir))
        origins["daemon.state_dir"] = _origin("KBSLURM_STATE_DIR", env, lines)
    if around.get("GITHUB_API_URL"):
        api_url = _public_url(around["GITHUB_API_URL"])
        told = dataclasses.replace(told, github=dataclasses.replace(told.github, api_url=api_url))
        origins["github.api_url"] = _origin("GITHUB_API_URL", env, lines)
    if around.get("MODAL_SERVER_URL"):
        api_url = _public_url(around["MODAL_SERVER_URL"])
        told = dataclasses.replace(told, modal=dataclasses.replace(told.modal, api_url=api_url))
        origins["modal.api_url"] = _origin("MODAL_SERVER_URL", env, lines)
    if told.daemon.state_dir is None:
        state_dir = default_state_dir(env)
        told = dataclasses.replace(told, daemon=dataclasses.replace(told.daemon, state_dir=state_dir))
    secrets: dict[str, Secret] = {}
    for name in SECRETS:
        if found := _secret(name, around, here):
            secrets[name] = Secret(found)
            source = name if around.get(name) else f"{name}_FILE"
            origins[name] = _origin(source, env, lines)
    _check_addresses(told, known)
    _check_github(told.github, known)
    parts = {one.name: getattr(told, one.name) for one in dataclasses.fields(told)}
    return Config(**parts, file=file, secrets=secrets, origins=origins)


def _check_addresses(told: _File, file: toml_file.TomlFile) -> None:
    """Each face its own address: else whichever starts last would end at a port that its neighbour holds."""
    taken: dict[str, str] = {}
    for key, address in (
        ("server.listen", told.server.listen),
        ("server.metrics", told.server.metrics),
        ("daemon.metrics", told.daemon.metrics),
    ):
        if not address or address.endswith(":0"):
            continue
        if address in taken:
            raise Misconfigured(
                f"{address} is {taken[address]}'s address already",
                file=file.path,
                line=file.line(_path_of(key)),
                key=key,
                fix="Give each a port of its own.",
            )
        taken[address] = key


def _check_github(github: Github, file: toml_file.TomlFile) -> None:
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


def shown(config: Config) -> Iterator[tuple[str, str, str]]:
    """Every setting as (key, value, where it came from), secrets masked."""
    yield "file", str(config.file or "none"), "the first that was found" if config.file else "no kbslurm.toml was found"
    for key, value in _leaves(config):
        yield key, _as_text(value), config.origins.get(key, "default")
    for name in SECRETS:
        found = config.secrets.get(name)
        said = "not set" if found is None else masked_url(found.reveal()) if name == "DATABASE_URL" else MASK
        yield name, said, config.origins.get(name, "default")


def schema() -> dict[str, Any]:
    """The JSON schema of kbslurm.toml."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kbslurm",
        **toml_file.schema_of(_File),
    }


def masked_url(url: str) -> str:
    """The URL without its password, wherever that stands in it."""
    masked = re.sub(r"(?<=://)([^/?#]*):([^/?#]*)@", rf"\1:{MASK}@", url)
    masked = re.sub(r"([?&]\w*password=)[^&#]*", rf"\1{MASK}", masked)
    return masked if "://" in url else MASK


def default_state_dir(env: Mapping[str, str]) -> Path:
    """kbslurm's folder in the user's state folder; below the temporary folder for a user without a home."""
    if env.get("XDG_STATE_HOME"):
        return Path(env["XDG_STATE_HOME"]) / "kbslurm"
    home = _home(env)
    return home / ".local" / "state" / "kbslurm" if home else Path(tempfile.gettempdir()) / f"kbslurm-{os.getuid()}"


def _found(path: Path | None, env: Mapping[str, str], here: Path) -> Path | None:
    named = path or (Path(env["KBSLURM_CONFIG"]) if env.get("KBSLURM_CONFIG") else None)
    if named is not None:
        return toml_file.resolved(str(named), here)
    home = _home(env)
    folder = Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else home / ".config" if home else None
    for place in (here / FILE_NAME, folder / "kbslurm" / FILE_NAME if folder else None):
        if place is not None and place.is_file():
            return place
    return None


def _home(env: Mapping[str, str]) -> Path | None:
    if env.get("HOME"):
        return Path(env["HOME"])
    try:
        # Only the real environment may fall back on the account's entry: another is somebody's idea of a world.
        return Path.home() if env is os.environ and "HOME" not in env else None
    except RuntimeError:
        return None


def _with_dotenv(env: Mapping[str, str], file: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The environment with `.env` below it, and on which line of it each name stands."""
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured("it can't be read", file=file, fix="Correct its permissions, or remove it.") from error
    found: dict[str, str] = {}
    lines: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip().removeprefix("export ").strip()
        if not words or words.startswith("#"):
            continue
        name, sep, value = words.partition("=")
        if not sep or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()):
            raise Misconfigured("a line of it is no NAME=value", file=file, line=number, fix="Correct it there.")
        found[name.strip()] = _unquoted(value.strip())
        lines[name.strip()] = f"{file}:{number}"
    return {**found, **env}, lines


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return re.split(r"\s+#", value, maxsplit=1)[0]


def _secret(name: str, env: Mapping[str, str], here: Path) -> str | None:
    named, file = env.get(name), env.get(f"{name}_FILE")
    if named and file:
        raise Misconfigured(f"both {name} and {name}_FILE are set", fix="Unset one of them.")
    if not file:
        return named or None
    path = toml_file.resolved(file, here)
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise Misconfigured(f"{name}_FILE names a file that can't be read ({said})", file=path) from None
    if not text:
        raise Misconfigured(f"{name}_FILE names an empty file", file=path)
    return text


def _origin(name: str, env: Mapping[str, str], lines: Mapping[str, str]) -> str:
    return f"${name}" if env.get(name) else lines.get(name, f"${name}")


def _leaves(table: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for one in dataclasses.fields(table):
        value = getattr(table, one.name)
        if dataclasses.is_dataclass(value) and "reads" not in one.metadata:
            yield from _leaves(value, f"{above}{one.name}.")
        elif above:
            yield f"{above}{one.name}", value


def _path_of(key: str) -> tuple[str, ...]:
    return tuple(key.split("."))


def _is_in(file: toml_file.TomlFile, key: str) -> bool:
    here: Any = file.data
    for part in _path_of(key):
        if not isinstance(here, Mapping) or part not in here:
            return False
        here = here[part]
    return True


def _as_text(value: Any) -> str:
    match value:
        case Mapping():
            return ", ".join(f"{key} = {_as_text(one)}" for key, one in value.items()) or "none"
        case tuple():
            return ", ".join(map(str, value)) or "none"
        case None | "":
            return "none"
        case bool():
            return str(value).lower()
        case placement.Overflow():
            return str(value)
        case _ if dataclasses.is_dataclass(value):
            said = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
            return "{ " + ", ".join(f"{key} = {_as_text(one)}" for key, one in said.items()) + " }"
        case _:
            return f"{value:g}" if isinstance(value, float) else str(value)
