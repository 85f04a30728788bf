"""schemathesis over the document: no call breaks, answers a status that isn't in it, or answers in another shape.

`KBSLURM_TEST_SCHEMATHESIS_EXAMPLES=100` looks longer, and with `KBSLURM_TEST_SCHEMATHESIS_SEED` elsewhere.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Err
from schemathesis.specs.openapi import checks

from kbslurm.flow.submit import accept
from kbslurm.problems import loading
from tests.flow.stage import HandClock
from tests.popcorn.served_api import ADMIN, GOOD, GPUS, TRANSPOSE, ServedApi, served

# Of each call, once of what fits the document and once of what doesn't; each is sent by everybody who asks.
EXAMPLES = int(os.environ.get("KBSLURM_TEST_SCHEMATHESIS_EXAMPLES", "2"))
SEED = int(os.environ.get("KBSLURM_TEST_SCHEMATHESIS_SEED", "5"))
# It reads repositories: what it does with any words is tried where the repositories are ours.
ELSEWHERE = {"/admin/update-problems"}
ACTING = "X-Kbslurm-Acting-For"
STREAMS = ("text/event-stream", "application/x-ndjson")
HELD = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
# What exists, so that not every call ends at a 404.
KNOWN: dict[str, list[Any]] = {
    "leaderboard": ["transpose"],
    "gpu": list(GPUS),
    "mode": ["test", "leaderboard"],
    "submission_id": [1, 2],
    "run_id": [1, 2],
    "user_id": ["1", "ada"],
    "provider": ["discord", "github"],
}


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def test_schemathesis_finds_nothing(api: ServedApi) -> None:
    document = api.client(None).call("GET", "/openapi.json").json()
    met: Counter[tuple[str, int]] = Counter()
    wrong: dict[str, str] = {}  # by call and status
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        if isinstance(found, Err):
            raise found.err()
        operation = found.ok()
        if operation.path not in ELSEWHERE:
            for generated in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                _try(api.url, operation, generated, _senders(api), met, wrong)
    assert not wrong, "\n".join(wrong.values())
    seen = {status for _, status in met}
    assert {200, 202, 400, 401, 403, 404, 422} <= seen and not any(status >= 500 for status in seen), met
    assert met["staff", 200] > met["ada", 200] > met["nobody", 200] > 0 and not met["nobody", 202], met


def _senders(api: ServedApi) -> dict[str, dict[str, str]]:
    """Who asks, by the headers that say so. What a call before may have ended is put back."""
    store, now = api.store, api.now
    ada, grace = store.people.ensure("ada"), store.people.ensure("grace", "staff")
    store.settings.set_accepts_jobs(True, by="host", now=now)
    for one in (ada, grace):
        store.people.unban(one.id, by="host", now=now)
    if store.boards.find("transpose") is None:
        store.boards.add("transpose", loading.load(TRANSPOSE), gpus=GPUS, confirm=False, now=now)
    store.boards.edit("transpose", by="host", gpus=["H100"], reopen=True, now=now)
    store.boards.set_deadline("transpose", None, "UTC", by="host", now=now)
    if not store.submissions.newest(person=ada.id, board="transpose", limit=1):
        accept(store.intake, ada.id, "transpose", "k.py", GOOD, "leaderboard", ["H100"], now)
    tokens = {person: store.tokens.issue(person.id, now=now) for person in (ada, grace)}
    return {
        "nobody": {},
        "ada": {"X-Popcorn-Cli-Id": tokens[ada]},
        "staff": {"X-Popcorn-Cli-Id": tokens[grace], "Authorization": f"Bearer {ADMIN}"},
    }


def _try(
    url: str,
    operation: APIOperation[Any, Any, Any, Any],
    generated: GenerationMode,
    senders: Mapping[str, Mapping[str, str]],
    met: Counter[tuple[str, int]],
    wrong: dict[str, str],
) -> None:
    @seed(SEED)
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=generated), data=st.data())
    def ask(case: Case[Any], data: st.DataObject) -> None:
        plain = generated is GenerationMode.POSITIVE and data.draw(st.booleans())
        if plain:
            for words in (case.path_parameters, case.query):
                for name in sorted(words.keys() & KNOWN):
                    words[name] = data.draw(st.sampled_from(KNOWN[name]))
            case.headers.pop(ACTING, None)
        for who, headers in senders.items():
            sent = case.as_transport_kwargs(base_url=url, headers=dict(headers))
            if plain and case.media_type == "multipart/form-data":
                sent["files"] = {"file": ("k.py", GOOD)}
            with requests.request(stream=True, timeout=60, allow_redirects=False, **sent) as answer:
                if answer.headers.get("content-type", "").startswith(STREAMS):
                    answer._content = b""  # it has no end
                met[who, answer.status_code] += 1
                try:
                    case.validate_response(answer, checks=HELD)
                except FailureGroup as said:
                    wrong.setdefault(f"{operation.label}: {answer.status_code}", f"{who}: {said.message}")

    with suppress(Unsatisfiable):  # a call without words has nothing that doesn't fit
        ask()
