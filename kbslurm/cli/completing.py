"""The values that a shell completes: boards, GPU types, modes, submissions, people and the rest.

They come from the service in use or the database, within two seconds; where neither answers, there are none and not a
word about it. No database is made, started or upgraded for them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple, Never, get_args

import typer.core

from kbslurm.cli.arguments import BoardName, PersonName, SubmissionNumber
from kbslurm.cli.chosen import chosen
from kbslurm_eval.shared.wire import Mode

if TYPE_CHECKING:
    from kbslurm.client.http import Client
    from kbslurm.store.postgres import PostgresStore

DEADLINE_S = 2.0
NEWEST = 30
ABOUT = 60  # columns; shells show it beside the value


class Value(NamedTuple):
    """What may stand there, and a word on it for shells that show one."""

    text: str
    about: str = ""


def complete(kind: str, context: Any, _: Any, incomplete: str) -> list[Any]:
    """The values of this kind that begin so, as typer asks for them."""
    root = context.find_root().params
    chosen.config, chosen.context = root.get("config"), root.get("context")
    known: Iterable[Value] = ()
    try:
        with _in_time():
            known = list(KINDS[kind](context.params))
    except Exception:  # noqa: BLE001 - while somebody types there is nobody to tell
        return []
    begun = incomplete.lower()
    return [item(one.text, one.about) for one in known if one.text.lower().startswith(begun)]


def item(text: str, about: str | None = None) -> Any:
    """A value as typer passes it to a shell."""
    core: Any = typer.core
    return core.CompletionItem(text, help=shorten(about, ABOUT, placeholder="…") if about else None)


def kind_of(function: str, parameter: Any) -> str | None:
    """Which values this parameter of a command takes, if they can be completed."""
    if parameter.param_type_name == "option":
        return next((OPTIONS[one] for one in parameter.opts if one in OPTIONS), None)
    return SHARED.get(parameter.help) or ARGUMENTS.get(f"{function} {parameter.name}")


def completer(kind: str) -> Callable[[Any, Any, str], list[Any]]:
    """The function that typer calls."""
    return partial(complete, kind)


class _Late(Exception):
    """Nobody waits longer for a completion."""


@contextmanager
def _in_time() -> Iterator[None]:
    def late(*_: object) -> Never:
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _client(*, host: bool = False) -> Iterator[Client | None]:
    """The service in use, if one is."""
    from kbslurm.cli.competitor.connect import is_near
    from kbslurm.cli.service_in_use import in_use

    found = in_use()
    if found is None:
        yield None
        return
    from kbslurm.client.http import Client

    admin = found.token if host else None
    with Client(
        found.url, token=found.token, admin=admin, timeout_s=DEADLINE_S, trust_env=not is_near(found.url)
    ) as client:
        yield client


@contextmanager
def _store() -> Iterator[PostgresStore | None]:
    """The database, if one is configured or the embedded one runs."""
    from kbslurm import wiring
    from kbslurm.cli.context import configuration

    url = wiring.running_database(configuration())
    if url is None:
        yield None
        return
    from kbslurm.store.postgres import PostgresStore

    store = PostgresStore(url)
    try:
        yield store
    finally:
        store.close()


def _boards(_: Mapping[str, Any]) -> Iterator[Value]:
    for name, gpus in _gpus_of_boards().items():
        yield Value(name, " ".join(gpus))


def _gpus_of_boards() -> dict[str, list[str]]:
    with _client() as client:
        if client is not None:
            return {row["name"]: list(row["gpu_types"]) for row in client.board_rows()}
    with _store() as store:
        return {} if store is None else {one.name: list(one.gpus) for one in store.boards.all(counted=False)}


def _gpus(given: Mapping[str, Any]) -> Iterator[Value]:
    """Those of the board that stands on the line, else those of every board."""
    known = _gpus_of_boards()
    named = {str(given.get(key) or "").lower() for key in ("board", "name")}
    here = [gpus for name, gpus in known.items() if name.lower() in named] or list(known.values())
    yield from (Value(gpu) for gpu in dict.fromkeys(gpu for gpus in here for gpu in gpus))


def _modes(_: Mapping[str, Any]) -> Iterator[Value]:
    yield from (Value(mode) for mode in get_args(Mode))


def _submissions(_: Mapping[str, Any]) -> Iterator[Value]:
    """One's own newest."""
    with _client() as client:
        rows: Iterable[Mapping[str, Any]] | None = None if client is None else client.submission_rows(limit=NEWEST)
    if rows is None:
        with _store() as store:
            rows = () if store is None else _own_rows(store)
    for row in rows:
        yield Value(str(row["id"]), f"{row['leaderboard_name']} {row['mode']} {row['file_name']} {row['status']}")


def _own_rows(store: PostgresStore) -> list[dict[str, Any]]:
    from kbslurm.api import popcorn_submission
    from kbslurm.cli.acting import known_person

    person = known_person(store, None, made=False)
    found = store.submissions.newest(person=person.id, limit=NEWEST) if person else []
    return [popcorn_submission.summary(view) for view in found]


def _people(_: Mapping[str, Any]) -> Iterator[Value]:
    """For hosts; nobody else may list people."""
    with _client(host=True) as client:
        if client is not None:
            yield from (Value(str(row["name"]), str(row["role"])) for row in client.users())
            return
    with _store() as store:
        if store is not None:
            yield from (Value(one.name, one.role) for one in store.people.all())


def _contexts(_: Mapping[str, Any]) -> Iterator[Value]:
    from kbslurm.cli.competitor import kept_tokens

    yield from (Value(one.name, one.url) for one in kept_tokens.book().contexts.values())
    yield Value(kept_tokens.DATABASE, "the database that is configured here")


def _problems(_: Mapping[str, Any]) -> Iterator[Value]:
    with _client(host=True) as client:
        if client is not None:
            yield from (Value(name) for name in dict.fromkeys(str(row["name"]) for row in client.problems()))
            return
    with _store() as store:
        if store is not None:
            yield from (Value(name) for name in dict.fromkeys(one.name for one in store.problems.all()))


KINDS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Value]]] = {
    "boards": _boards,
    "gpus": _gpus,
    "modes": _modes,
    "submissions": _submissions,
    "people": _people,
    "contexts": _contexts,
    "problems": _problems,
}
OPTIONS = {
    "--board": "boards",
    "--gpu": "gpus",
    "--mode": "modes",
    "--as": "people",
    "--person": "people",
    "--problem": "problems",
}
# By the help of the arguments that many commands share.
SHARED = {
    get_args(BoardName)[1].help: "boards",
    get_args(PersonName)[1].help: "people",
    get_args(SubmissionNumber)[1].help: "submissions",
}
ARGUMENTS = {
    "competitor.context:remove name": "contexts",
    "competitor.context:use name": "contexts",
    "competitor.diff:diff newer": "submissions",
    "competitor.diff:diff older": "submissions",
    "competitor.history:history board": "boards",
    "competitor.profile:profile submission": "submissions",
    "host.board_extend:board_extend person": "people",
    "host.board_role:board_role whom": "people",
    "host.invite:make boards": "boards",
    "host.problem_show:problem_show name": "problems",
    "host.stats:stats board": "boards",
    "host.submission:code numbers": "submissions",
    "host.submission:show_ number": "submissions",
    "host.user_delete:user_delete name": "people",
    "host.worklog:worklog whose": "people",
    "operator.shadow:order submission": "submissions",
}
