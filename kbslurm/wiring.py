"""The only file that knows every concrete class: it turns a configuration into a store and places. Imports lazily."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbslurm.config import shared_folders, toml_file
from kbslurm.config.settings import Config
from kbslurm.domain.intake import Offer
from kbslurm.domain.physics import Peak
from kbslurm.domain.placement import Budget, Rules
from kbslurm.domain.secret_names import of_ray
from kbslurm.errors import BackendTrouble, KbslurmError, Misconfigured
from kbslurm.flow.place import Place
from kbslurm.observe.crash_points import crash_point

if TYPE_CHECKING:
    from kbslurm.backends.modal.connection import Connection
    from kbslurm.backends.ray.api import Api as RayApi
    from kbslurm.backends.ray.backend import RayImage
    from kbslurm.backends.slurm.call_budget import CallBudget
    from kbslurm.backends.slurm.commands import Commands
    from kbslurm.config.sections.ray import RaySection
    from kbslurm.domain.problem import Problem
    from kbslurm.domain.site import Fleet, GpuType, Site, Submission
    from kbslurm.ports import NodeJobs
    from kbslurm.store.postgres import PostgresStore

POSTGRES = "postgres"
ATTEMPTS = "attempts"
MODAL = "modal"
GITHUB_SECRETS = ("GITHUB_TOKEN", "KBSLURM_RUN_KEY")
MODAL_SECRETS = ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")
SHARED_GRACE_S = 25.0
GITHUB_SLOTS = 4
GITHUB_QUEUE_S = 26 * 3_600.0  # GitHub cancels a job that no runner picked up within a day


@contextmanager
def database(config: Config) -> Iterator[str]:
    """The database's URL: the configured one, or that of an embedded server that runs at least as long as this
    process."""
    if config.database_url is not None:
        yield config.database_url
        return
    from kbslurm.store.embedded import Embedded

    with Embedded.start(config.state_dir / POSTGRES) as embedded:
        yield embedded.url


def has_database(config: Config) -> bool:
    """Whether there is one: one is configured, or an embedded one was made here. Makes and starts none."""
    if config.database_url is not None:
        return True
    from kbslurm.store import embedded

    return embedded.exists(config.state_dir / POSTGRES)


def running_database(config: Config) -> str | None:
    """The URL of the configured database, or of the embedded one if it runs now. Starts none."""
    if config.database_url is not None:
        return config.database_url
    from kbslurm.store import embedded

    return embedded.running_url(config.state_dir / POSTGRES)


@contextmanager
def opened_store(config: Config, *, migrated: bool = True) -> Iterator[PostgresStore]:
    """The store. An empty database gets the schema and an embedded one is upgraded; any other is upgraded by an admin.

    With `migrated` false, the schema is neither checked nor changed: for commands that only report the state.
    """
    from kbslurm.store import migrate
    from kbslurm.store.postgres import PostgresStore

    with database(config) as url:
        if migrated:
            found = migrate.check(url)
            ours = config.database_url is None
            if found is migrate.Schema.EMPTY or (ours and found is migrate.Schema.BEHIND):
                migrate.upgrade(url)
            migrate.ensure_current(url)
        store = PostgresStore(url)
        if config.database_url is not None:
            store.renew_by(lambda: config.secret_again("DATABASE_URL"))
        try:
            yield store
        finally:
            store.close()


def places(config: Config) -> list[Place]:
    """Where runs may go, in order of preference: the sites as listed, then this machine, then external services.

    Each knows its kind, where its attempts are, and a digest of all that it was made from.
    """
    found = [
        _described(slurm_place(site, budget=call_budget(config, site)), "slurm", slurm_home(site), settings=site)
        for site in sites(config)
    ]
    if config.daemon.local.slots:
        found.append(_described(local_place(config), "local", (str(config.state_dir),), settings=config.daemon))
    if config.github.gpus:
        keys = [config.secret(name) or "" for name in GITHUB_SECRETS]
        place = github_place(config)
        found.append(_described(place, "github", github_home(config), settings=config.github, secrets=keys))
    if config.modal.gpus:
        keys = [config.secret(name) or "" for name in MODAL_SECRETS]
        found.append(_described(modal_place(config), "modal", modal_home(config), settings=config.modal, secrets=keys))
    for name, told in config.ray.items():
        if told.gpus:
            keys = [config.secret(one) or "" for one in of_ray(name)]
            home = ray_home(config, name)
            found.append(_described(ray_place(config, name), "ray", home, settings=told, secrets=keys))
    found = [_as_decided(place, config) for place in found]
    names = [place.name for place in found]
    _check_named(config, names)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Misconfigured(f"two places are named {twice}", fix="Change daemon.local.name or the site's name.")
    return found


def kinds(config: Config) -> Mapping[str, str]:
    """The kind of each place, in the order of `places`. Needs no secrets and makes no calls."""
    found = {site.name: "slurm" for site in sites(config)}
    found |= {config.local_name: "local"} if config.daemon.local.slots else {}
    found |= {"github": "github"} if config.github.gpus else {}
    found |= {MODAL: "modal"} if config.modal.gpus else {}
    return found | {name: "ray" for name, told in config.ray.items() if told.gpus}


# The home of each kind: all that decides where its attempts are and whether their results can be read, so that a reload
# never looks for open ones elsewhere. A key that seals results belongs to it, as does the account at a service.


def slurm_home(site: Site) -> tuple[str, ...]:
    """Which scheduler a site's jobs are at, and as whose; its folders are added from the place."""
    way = site.submit
    return way.via, way.host, str(way.port), way.user, way.url, site.slurm.cluster, site.slurm.conf


def github_home(config: Config) -> tuple[str, ...]:
    """The repository, and the key of what it stores."""
    return config.github.api_url, config.github.repository, github_key(config).hex()


def modal_home(config: Config) -> tuple[str, ...]:
    """The app, its environment, and the token's ID in place of its workspace, which only a call could tell."""
    told = config.modal
    return told.api_url, told.app, told.environment, modal_token(config)[0]


def ray_home(config: Config, name: str) -> tuple[str, ...]:
    """The cluster, and the key of what its nodes are sent and send."""
    return config.ray[name].url, ray_key(config, name).hex()


def _described(place: Place, kind: str, home: Sequence[str], *, settings: object, secrets: Sequence[str] = ()) -> Place:
    """The place with its kind, and digests of where its attempts are and of all that it was made from. A secret that is
    rotated changes the latter, so the place is made anew."""
    where = _digest(*home, str(place.root or ""), str(place.keepers_root or ""))
    return replace(place, kind=kind, home=where, settings=_digest(repr(settings), where, *secrets))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


def _as_decided(place: Place, config: Config) -> Place:
    """The place together with its settings from the rest of the configuration."""
    said = config.policy.places.get(place.name)
    if said is None:
        return place
    place = replace(place, settings=_digest(place.settings, repr(said)))
    prices = {gpu: per_hour / 3_600.0 for gpu, per_hour in said.cost_per_gpu_hour.items()}
    return replace(
        place,
        role=said.role or place.role,
        classes={**place.classes, **said.classes},
        prices={**place.prices, **prices},
    )


def _check_named(config: Config, names: Sequence[str]) -> None:
    """Refuse names of unknown places: a rule for a misspelled place would never apply."""
    named = [(f"policy.places.{name}", name) for name in config.policy.places]
    named += [
        (f"policy.overflow_boards.{board}", name)
        for board, places in config.policy.overflow_boards.items()
        for name in places
    ]
    for key, name in named:
        if name not in names:
            here = ("policy", *key.removeprefix("policy.").split(".", 1))
            file = config.file
            raise Misconfigured(
                f"there is no place {name!r}",
                file=file,
                line=toml_file.read(file).line(here) if file is not None else None,
                key=key,
                fix=f"Choose one of: {', '.join(names)}." if names else "No place is configured.",
            )


def rules(config: Config) -> Rules:
    """The hosts' rules for where runs go."""
    decided = config.policy
    return Rules(
        overflow=decided.overflow,
        other_class=decided.other_class,
        boards=decided.overflow_boards,
        classes=decided.classes,
        budget=budget(config),
        shadow=decided.shadow,
    )


def budget(config: Config) -> Budget:
    """The monthly budget."""
    decided = config.policy.budget
    return Budget(
        month=decided.month,
        boards=decided.boards,
        team=decided.team,
        teams=decided.teams,
        currency=decided.currency,
    )


def sites(config: Config) -> tuple[Site, ...]:
    """The sites in use."""
    if not config.sites.use:
        return ()
    from kbslurm.config.sites import load_all

    return load_all(config.sites_dir or shared_folders.path("site-configs"), config.sites.use)


def slots(config: Config) -> Mapping[str, int]:
    """How many attempts may be open at once, by GPU type, across all places. Makes no calls."""
    found: dict[str, int] = dict(config.daemon.local.slots)
    for site in sites(config):
        for name, gpu in site.gpus.items():
            found[name] = found.get(name, 0) + gpu.slots
    for name, most in (github_slots(config) if config.github.gpus else {}).items():
        found[name] = found.get(name, 0) + most
    for name, function in config.modal.gpus.items():
        found[name] = found.get(name, 0) + function.slots
    for cluster in config.ray.values():
        for name, asked in cluster.gpus.items():
            found[name] = found.get(name, 0) + asked.slots
    return found


def slots_at(config: Config, place: str, gpu: str) -> int:
    """How many attempts may be open at this place on this GPU type. Makes no calls."""
    for site in sites(config):
        if site.name == place and gpu in site.gpus:
            return site.gpus[gpu].slots
    if place == config.local_name:
        return config.daemon.local.slots.get(gpu, 0)
    if place in config.ray:
        asked = config.ray[place].gpus.get(gpu)
        return asked.slots if asked is not None else 0
    if place == "github":
        return github_slots(config).get(gpu, 0)
    return config.modal.gpus[gpu].slots if place == MODAL and gpu in config.modal.gpus else 0


def short_of_memory(config: Config, problem: Problem, gpus: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """By GPU type, why sites give a job less memory than this problem needs. Makes no calls."""
    from kbslurm.flow import script

    found: dict[str, list[str]] = {}
    for site in sites(config):
        for gpu in set(gpus) & set(site.gpus):
            short = script.short_of_memory(site, gpu, problem.memory_bytes, problem.world_size)
            if short is not None:
                found.setdefault(gpu, []).append(short)
    return found


def check_slots(config: Config) -> None:
    """Refuse a configuration in which nothing could ever run."""
    if not slots(config):
        raise Misconfigured(
            "no backend is configured, so nothing could run",
            fix="List sites in kbslurm.toml ([sites] use), or add: [daemon.local] slots = { H100 = 1 }.",
        )


def offers(config: Config) -> tuple[Offer, ...]:
    """The places that a test run may be pinned to, in the order of `places`. Needs no secrets and makes no calls."""
    found = [
        Offer(
            name=site.name,
            gpus=tuple(name for name, gpu in site.gpus.items() if gpu.slots),
            staff_only=not site.untrusted,
        )
        for site in sites(config)
    ]
    local, github, modal = config.daemon.local, config.github, config.modal
    if local.slots:
        found.append(Offer(name=config.local_name, gpus=tuple(local.slots), staff_only=local.staff_only))
    if github.gpus:
        found.append(Offer(name="github", gpus=tuple(github.gpus), role="overflow", staff_only=github.staff_only))
    if modal.gpus:
        found.append(Offer(name="modal", gpus=tuple(modal.gpus), role="overflow", staff_only=modal.staff_only))
    for name, told in config.ray.items():
        if told.gpus:
            found.append(Offer(name=name, gpus=tuple(told.gpus), staff_only=told.staff_only))
    decided = config.policy.places
    return tuple(replace(one, role=decided[one.name].role or one.role) if one.name in decided else one for one in found)


def call_budget(config: Config, site: Site) -> CallBudget:
    """The budget of calls to a site's scheduler that all processes with this state folder share."""
    from kbslurm.backends.slurm.call_budget import CallBudget

    return CallBudget(site.poll.calls_per_minute, file=config.state_dir / "scheduler-calls" / f"{site.name}.json")


def commands(config: Config, site: Site, *, wait_s: float) -> Commands:
    """A site's scheduler commands for a command of ours, within the budget that it shares with the daemon. Without room
    it waits for at most this long."""
    from kbslurm.backends.slurm.transport import commands_of

    budget = call_budget(config, site)
    return commands_of(site, before=lambda: budget.wait(site.name, wait_s=wait_s), heard=lambda _: budget.spend())


def commands_here(
    config: Config, name: str, *, bin_dir: str, submit: Submission | None = None, wait_s: float
) -> Commands:
    """Slurm's commands on this machine, or slurmrestd, for a site of this name that has no file yet. Each call also
    counts for the configured sites that reach Slurm the same way: they share the scheduler."""
    from kbslurm.backends.slurm.commands import Answer
    from kbslurm.backends.slurm.doctor.survey import without_a_file
    from kbslurm.backends.slurm.transport import commands_of
    from kbslurm.config.sites import NAME

    ours = without_a_file(name if NAME.fullmatch(name) else "here", bin_dir=bin_dir, submit=submit)
    way = _way(ours)
    same: list[Site] = []
    with suppress(KbslurmError):  # another site's mistake is reported by its own check
        same = [one for one in sites(config) if one.submit.via != "ssh" and _way(one) == way]
    budgets = [call_budget(config, one) for one in {ours.name: ours, **{one.name: one for one in same}}.values()]

    def before() -> None:
        for budget in budgets:
            budget.wait(ours.name, wait_s=wait_s)

    def heard(_: Answer) -> None:
        for budget in budgets:
            budget.spend()

    return commands_of(ours, before=before, heard=heard)


def _way(site: Site) -> tuple[str, str]:
    """How its scheduler is reached from this machine."""
    return site.submit.via, site.submit.url if site.submit.via == "rest" else site.slurm.bin_dir


def fleet(config: Config, site: Site) -> Fleet:
    """The current state of the site's nodes: two calls, through pyslurm if it is configured and compatible."""
    from kbslurm.backends.slurm.fleet import fleet_reader

    return fleet_reader(site, commands(config, site, wait_s=0.0)).read()


def local_place(config: Config, *, eval_dir: Path | None = None) -> Place:
    """This machine. Its jobs signal when they start and end, so it is polled rarely; its files are never late."""
    from kbslurm.backends.local.backend import LocalBackend

    return Place(
        backend=LocalBackend(
            config.state_dir / ATTEMPTS,
            config.daemon.local.slots,
            eval_dir or shared_folders.eval_dir(),
            Path(sys.executable),
            config.local_name,
            crash_point=lambda step: crash_point(f"local.{step}"),
            profiler=config.daemon.local.profiler,
        ),
        untrusted=not config.daemon.local.staff_only,
        poll_s=min(2.0, config.daemon.poll_s),
        grace_s=0.0,
        sweep_gap_s=0.2,
        patience_s=300.0,
        stray_s=300.0,
    )


def github_place(config: Config, *, eval_dir: Path | None = None) -> Place:
    """GitHub Actions. Its API is polled rarely; its queue may hold a run for a day, which doesn't count towards the
    run's time limit."""
    from kbslurm.backends.github.backend import GithubBackend

    told = config.github
    backend = GithubBackend(
        told.repository,
        told.gpus,
        github_slots(config),
        tokens=github_tokens(config),
        renew=lambda: github_tokens(config, again=True),
        key=github_key(config),
        eval_dir=eval_dir or shared_folders.eval_dir(),
        branch=told.branch,
        api_url=told.api_url,
        python=told.python,
        min_isolation=told.min_isolation,
        ranked=told.ranked,
        crash_point=lambda step: crash_point(f"github.{step}"),
    )
    return Place(
        backend=backend,
        untrusted=not told.staff_only,
        ranked_min_isolation=told.ranked_min_isolation,
        role="overflow",
        poll_s=told.poll_s,
        grace_s=max(2.0, 2 * told.poll_s),
        sweep_gap_s=max(1.0, 2 * told.poll_s),
        patience_s=GITHUB_QUEUE_S,
        widest=dict.fromkeys(told.gpus, 1),
    )


def github_slots(config: Config) -> Mapping[str, int]:
    """How many attempts may be open at GitHub, by GPU type."""
    return {gpu: config.github.slots.get(gpu, GITHUB_SLOTS) for gpu in config.github.gpus}


def github_tokens(config: Config, *, again: bool = False) -> list[str]:
    """The tokens, used in turn; `again`: as their file or command says them now."""
    told = config.secret_again("GITHUB_TOKEN") if again else config.secret("GITHUB_TOKEN")
    found = (told or "").replace(",", " ").split()
    if not config.github.repository or not found:
        what = "github.gpus is set without github.repository" if found else "github.gpus is set without GITHUB_TOKEN"
        raise Misconfigured(what, file=config.file, key="github", fix="docs/overflow.md lists what to set.")
    if not all(token.isascii() and token.isprintable() for token in found):
        raise Misconfigured(
            "GITHUB_TOKEN contains a character that isn't allowed in a token",
            fix="Copy it again; a token consists of ASCII letters, digits and _.",
        )
    return found


def github_key(config: Config) -> bytes:
    """The key that encrypts what the repository stores."""
    from kbslurm.backends.github.runner_program import OrderFailed, key_in

    try:
        return key_in(config.secret("KBSLURM_RUN_KEY") or "")
    except OrderFailed as error:
        raise Misconfigured(
            str(error),
            fix="Make one with: openssl rand -hex 32. The repository needs the same key as an Actions secret.",
        ) from None


def modal_place(config: Config) -> Place:
    """Modal. A lost call is waited out there, so sweeps may follow one another closely."""
    from kbslurm.backends.modal.backend import ModalBackend, ModalGpu

    told = config.modal
    backend = ModalBackend(
        modal_connection(config),
        app=told.app,
        gpus={
            name: ModalGpu(slots=gpu.slots, timeout_s=gpu.timeout_s, memory_bytes=int(gpu.memory_gb * (1 << 30)))
            for name, gpu in told.gpus.items()
        },
        harness_digest=modal_facts(config)["harness_digest"],
        start_within_s=told.start_within_s,
        min_isolation=told.min_isolation,
        crash_point=lambda step: crash_point(f"modal.{step}"),
    )
    return Place(
        backend=backend,
        untrusted=not told.staff_only,
        ranked_min_isolation=told.ranked_min_isolation,
        role="overflow",
        poll_s=told.poll_s,
        grace_s=2.0,
        sweep_gap_s=max(1.0, told.poll_s),
        patience_s=told.start_within_s,
        widest={name: gpu.count for name, gpu in told.gpus.items()},
    )


def ray_place(config: Config, name: str) -> Place:
    """A Ray cluster. What its nodes say comes to our own database, so a report is never late once it is there."""
    from kbslurm.backends.ray.backend import RayBackend, RayGpu, RayNodes

    told = config.ray[name]
    backend = RayBackend(
        ray_api(config, name),
        lambda: _node_jobs(config),
        name=name,
        gpus={
            gpu: RayGpu(
                num_gpus=asked.num_gpus,
                resources=asked.resources,
                slots=asked.slots,
                memory_bytes=int(asked.memory_gb * (1 << 30)),
                image=_ray_image(told, gpu),
            )
            for gpu, asked in told.gpus.items()
        },
        nodes=RayNodes(
            service_url=told.service_url or config.server.public_url, key_file=told.key_file, python=told.python
        ),
        key=ray_key(config, name),
        eval_dir=shared_folders.eval_dir(),
        lease_s=told.lease_s,
        min_isolation=told.min_isolation,
        ranked=told.ranked,
        crash_point=lambda step: crash_point(f"ray.{step}"),
    )
    return Place(
        backend=backend,
        untrusted=not told.staff_only,
        ranked_min_isolation=told.ranked_min_isolation,
        poll_s=told.poll_s,
        grace_s=max(2.0, 2 * told.poll_s),
        sweep_gap_s=max(1.0, told.poll_s),
        patience_s=told.start_within_s,
        widest={gpu: max(1, int(asked.num_gpus)) for gpu, asked in told.gpus.items()},
    )


def _ray_image(told: RaySection, gpu: str) -> RayImage | None:
    """The image of a GPU type there, and the programs that may run it."""
    from kbslurm.backends.ray.backend import RayImage
    from kbslurm.backends.supervisor_call import PROGRAMS
    from kbslurm.config.sections.ray import image_of

    image = image_of(told, gpu)
    if image is None:
        return None
    return RayImage(
        path=image.path,
        programs=PROGRAMS if told.runtime == "auto" else (told.runtime,),
        digest=image.digest,
        vendor=told.gpus[gpu].vendor,
        or_own_cage=told.runtime == "auto",
    )


def ray_api(config: Config, name: str) -> RayApi:
    """The connection to a cluster's API. Nothing is called before it is used."""
    from kbslurm.backends.ray.api import Api

    told, variable = config.ray[name], of_ray(name)[0]
    token = config.secret(variable) or ""
    if not (token.isascii() and token.isprintable()):
        raise Misconfigured(f"{variable} contains a character that isn't allowed in a token", fix="Copy it again.")
    return Api(name, url=told.url, token=token, timeout_s=told.timeout_s, ca_file=told.ca_file)


def ray_key(config: Config, name: str) -> bytes:
    """The run key that the service and the nodes of this cluster hold."""
    from kbslurm.backends.ray.calls import key_in

    variable = of_ray(name)[1]
    key = key_in(config.secret(variable))
    if key is None:
        raise Misconfigured(
            f"{variable} isn't a 32-byte key (64 hexadecimal digits)",
            fix=f"Make one with: openssl rand -hex 32. The nodes need the same in {config.ray[name].key_file}.",
        )
    return key


def _node_jobs(config: Config) -> NodeJobs:
    """Where the nodes' claims are: in the database that runs when they are first asked for."""
    from kbslurm.store.connect import Pool
    from kbslurm.store.node_jobs import NodeJobs

    url = running_database(config)
    if url is None:
        raise BackendTrouble("database", "it isn't running", hint="Start the service: kbslurm up.")
    return NodeJobs(Pool(url))


def modal_token(config: Config, *, again: bool = False) -> tuple[str, str]:
    """Both halves of the token; `again`: as their files or commands say them now."""
    from kbslurm.backends.modal.deploy import check_token

    told = config.secret_again if again else config.secret
    return check_token(told("MODAL_TOKEN_ID"), told("MODAL_TOKEN_SECRET"))


def modal_connection(config: Config) -> Connection:
    """The connection to Modal. Nothing is called before it is used."""
    from kbslurm.backends.modal.connection import Connection

    if not config.modal.gpus:
        raise Misconfigured(
            "[modal] has no GPU type", file=config.file, key="modal.gpus", fix="docs/overflow.md shows the five lines."
        )
    return Connection(
        *modal_token(config),
        api_url=config.modal.api_url,
        environment=config.modal.environment,
        renew=lambda: modal_token(config, again=True),
    )


def modal_facts(config: Config) -> Mapping[str, Any]:
    """The deployed app, as [modal] describes it."""
    from kbslurm.backends.modal import deploy
    from kbslurm.flow.script import harness_digest

    told = config.modal
    return deploy.told(
        app=told.app,
        image=told.image,
        python=told.python,
        packages=told.packages,
        functions={
            name: {
                "gpu": "" if gpu.type == "none" else f"{deploy.exact(gpu.type or name)}:{gpu.count}",
                "timeout_s": gpu.timeout_s,
                "cpu": gpu.cpu,
                "memory_mib": int(gpu.memory_gb * 1024),
                "slots": gpu.slots,
            }
            for name, gpu in told.gpus.items()
        },
        digest=harness_digest(shared_folders.eval_dir()),
    )


def modal_folder(config: Config, facts: Mapping[str, Any], to: Path | None = None) -> Path:
    """Write the folder for these settings and return the app file in it."""
    from kbslurm.backends.modal import deploy

    app_file = shared_folders.path("containers") / "modal_app.py"
    return deploy.render(to or config.state_dir / MODAL, facts, eval_dir=shared_folders.eval_dir(), app_file=app_file)


def slurm_place(site: Site, *, budget: CallBudget | None = None) -> Place:
    """A cluster. Its controller is polled only as often as the site allows; its files may arrive late."""
    from kbslurm.backends.slurm.backend import SlurmBackend
    from kbslurm.flow.script import keeper_writer, keepers_folder, needed_mb, script_writer

    eval_dir, templates = shared_folders.eval_dir(), shared_folders.path("sbatch_templates")
    backend = SlurmBackend(
        site, eval_dir=eval_dir, crash_point=lambda step: crash_point(f"slurm.{step}"), budget=budget
    )
    return Place(
        backend=backend,
        root=backend.root,
        script=script_writer(site, templates=templates, eval_dir=eval_dir),
        keepers_root=keepers_folder(site),
        keeper_script=keeper_writer(site, templates=templates, eval_dir=eval_dir),
        untrusted=site.untrusted,
        ranked_min_isolation=site.ranked_min_isolation,
        poll_s=min(1.0, site.poll.min_interval_s),  # files are checked each time, the controller at its own pace
        grace_s=site.paths.visibility_delay_s + SHARED_GRACE_S,
        peaks={name: _peak(gpu) for name, gpu in site.gpus.items()},
        warm={name: gpu.warm for name, gpu in site.gpus.items() if gpu.warm is not None and gpu.warm.max},
        start_s=site.start_s,
        widest={name: gpu.most for name, gpu in site.gpus.items() if gpu.most is not None},
        needs_mb=lambda work: needed_mb(site, work.problem.memory_bytes, work.problem.world_size),
    )


def _peak(gpu: GpuType) -> Peak:
    return Peak(
        flops_per_s=None if gpu.peak_tflops is None else gpu.peak_tflops * 1e12,
        bytes_per_s=None if gpu.peak_tbytes is None else gpu.peak_tbytes * 1e12,
    )
