"""The document against the server: whatever fits it or nearly does, no call breaks, answers a status that isn't in it,
or answers in another shape than it says. Hypothesis makes the values, from the document itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from kbslurm.contract.models import MODELS
from kbslurm.flow.submit import accept
from kbslurm.problems import loading
from tests.flow.stage import HandClock
from tests.popcorn.served_api import ADMIN, GOOD, TRANSPOSE, ServedApi, served

EXAMPLES = 6
# It reads repositories: what it does with any words is tried where the repositories are ours.
ELSEWHERE = {"/admin/update-problems"}
KNOWN: dict[str, list[Any]] = {
    "leaderboard": ["transpose", "TRANSPOSE"],
    "leaderboards": [["transpose"]],
    "leaderboard_name": ["transpose"],
    "gpu": ["H100", "a100"],
    "mode": ["test", "leaderboard", "profile"],
    "submission_id": [1, 2],
    "run_id": [1, 2],
    "user_id": ["1", "ada"],
    "whom": ["ada", "1", "discord:5"],
    "person": ["ada", "1"],
    "provider": ["discord", "github"],
    "until": ["2030-01-01 12:00", None],
    "since_token": ["now", "e0", "c0"],
    "object_id": ["AC", "python3", "H100", "1-H100"],
    "stream": [False],
    "account": ["5"],
}
text = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", "\x00", "../..", "%00", "-1", "NaN", "' OR 1=1 --", "a\r\nb", "x" * 80, str(2**63), "1e400"]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def test_every_call_keeps_what_the_document_says(api: ServedApi) -> None:
    store, now = api.store, api.now
    ada, problem = store.people.ensure("ada"), loading.load(TRANSPOSE)
    for _ in range(2):
        accept(store.intake, ada.id, "transpose", "k.py", GOOD, "leaderboard", ["H100"], now)
    token = store.tokens.issue(ada.id, now=now)
    senders: list[dict[str, str]] = [
        {},
        {"X-Popcorn-Cli-Id": token},
        {"X-Popcorn-Cli-Id": token, "Authorization": f"Bearer {ADMIN}"},
        {"Authorization": f"Bearer {ADMIN}", "X-Kbslurm-Acting-For": "person:ada"},
        {"X-Popcorn-Cli-Id": "nobody's", "Authorization": "Bearer no"},
    ]
    document = api.client(None).call("GET", "/openapi.json").json()
    met: dict[int, int] = {}
    with httpx.Client(base_url=api.url, timeout=60) as http:
        for path, row in document["paths"].items():
            for method, call in row.items():
                if path not in ELSEWHERE:
                    _try(http, document, method, path, call, senders, met)
                    # What was ended, shut or removed on the way is there for the next.
                    if store.tokens.person_of(token, now=now) is None:
                        token = store.tokens.issue(ada.id, now=now)
                        for sender in senders[1:3]:
                            sender["X-Popcorn-Cli-Id"] = token
                    if store.boards.find("transpose") is None:
                        store.boards.add("transpose", problem, gpus=["H100", "A100"], confirm=False, now=now)
                    store.settings.set_accepts_jobs(True, by="host", now=now)
                    store.people.unban(ada.id, by="host", now=now)
    assert met[200] > 40 and met[202] and met[401] and met[404] and met[422], met
    assert not any(status >= 500 for status in met), met


def _try(
    http: httpx.Client,
    document: Mapping[str, Any],
    method: str,
    path: str,
    call: Mapping[str, Any],
    senders: list[dict[str, str]],
    met: dict[int, int],
) -> None:
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        sent = data.draw(_request(document, path, call, senders))
        with http.stream(method.upper(), **sent) as answer:
            status, kind = answer.status_code, answer.headers.get("content-type", "")
            body = answer.read() if kind == "application/json" else b""
        met[status] = met.get(status, 0) + 1
        # A word in a path may lead to another call, or to none.
        known = {str(code) for code in call["responses"]} | ({"404", "405", "307"} if "{" in path else set())
        assert status < 500, (method, sent, body)
        assert str(status) in known, (method, sent, status, body)
        if body and str(status) in call["responses"]:
            _check(call["responses"][str(status)], json.loads(body), (method, sent))

    ask()


def _check(said: Mapping[str, Any], told: Any, about: object) -> None:
    """Hold an answer to its shape, unless a word in the path led to another call of the same status."""
    schema = said.get("content", {}).get("application/json", {}).get("schema", {})
    inner = schema.get("items", schema)
    name = str(inner.get("$ref", "")).rpartition("/")[2]
    if not name:
        return
    shape: Any = MODELS[name]
    try:
        TypeAdapter(list[shape] if "items" in schema else shape).validate_python(told)
    except ValueError as error:
        raise AssertionError((about, told)) from error


@st.composite
def _request(
    draw: st.DrawFn, document: Mapping[str, Any], path: str, call: Mapping[str, Any], senders: list[dict[str, str]]
) -> dict[str, Any]:
    found, plain = path, draw(st.booleans())  # every other request is one that somebody might make
    query: list[tuple[str, str]] = []
    for one in call.get("parameters", ()):
        name = one["name"]
        values = _value(document, one["schema"], name)
        if plain:
            values = st.sampled_from(KNOWN[name]) if name in KNOWN else _fitting(document, one["schema"], name)
        if one["in"] == "path":
            word = _as_word(draw(values.filter(lambda told: _as_word(told) not in ("", ".", ".."))))
            found = found.replace(f"{{{name}}}", quote(word, safe=""))
        elif one["in"] == "query" and draw(st.booleans()):
            told = draw(values)
            query += [(name, _as_word(word)) for word in (told if isinstance(told, list) else [told])]
    who = senders[2] if plain else draw(st.sampled_from(senders))
    sent: dict[str, Any] = {"url": found, "params": query, "headers": dict(who)}
    content = call.get("requestBody", {}).get("content", {})
    if "multipart/form-data" in content:
        source = draw(st.sampled_from([GOOD, b"", b"\xff\xfe", b"\x00"]) | st.binary(max_size=20))
        name = draw(st.sampled_from(["k.py", "k.txt", "", "a/b.py"]))
        sent["files"] = {"file": ("k.py", GOOD) if plain else (name, source)}
    elif "application/json" in content:
        body = draw(_value(document, content["application/json"]["schema"], "") | anything)
        sent["content"] = json.dumps(body).encode()
        sent["headers"]["Content-Type"] = "application/json"
    return sent


def _value(document: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> st.SearchStrategy[Any]:
    """Values that a schema means, those that exist, and those that it doesn't mean."""
    fitting = _fitting(document, schema, name)
    usual = st.sampled_from(KNOWN[name]) | fitting if name in KNOWN else fitting
    return usual | usual | anything if name else usual


def _fitting(document: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return _fitting(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], name)
    if "anyOf" in schema:
        return st.one_of([_fitting(document, one, name) for one in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "integer":
            return st.integers(schema.get("minimum", -(2**40)), schema.get("maximum", 2**40))
        case "number":
            return st.floats(schema.get("minimum"), schema.get("maximum"), allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            return st.lists(_value(document, schema["items"], name), max_size=3)
        case "object":
            made = {key: _value(document, inner, key) for key, inner in schema.get("properties", {}).items()}
            needed = {key: made.pop(key) for key in schema.get("required", ()) if key in made}
            return st.fixed_dictionaries(needed, optional=made)
        case _:
            return text


def _as_word(told: Any) -> str:
    return told if isinstance(told, str) else json.dumps(told)
