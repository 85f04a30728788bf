"""What the client makes of an answer is held to the contract: the names, what may be null, and the examples."""

from __future__ import annotations

from dataclasses import MISSING, fields
from datetime import UTC, datetime
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

from kbslurm.client import answers
from kbslurm.client.answers import (
    Accepted,
    ArtifactInfo,
    BoardInfo,
    FeedEvent,
    InvitationTaken,
    Joined,
    MadeBoard,
    May,
    PersonInfo,
    Queue,
    RunInfo,
    StandingInfo,
    SubmissionInfo,
    SubmissionSummary,
    Verifying,
)
from kbslurm.client.parsing import parsed
from kbslurm.contract.models import MODELS

OF: dict[type, str] = {
    Accepted: "Accepted",
    ArtifactInfo: "ArtifactTold",
    BoardInfo: "Leaderboard",
    FeedEvent: "FeedLine",
    InvitationTaken: "InvitationTaken",
    Joined: "Joined",
    SubmissionSummary: "SubmissionSummary",
    MadeBoard: "BoardMade",
    May: "May",
    PersonInfo: "PersonTold",
    StandingInfo: "Standing",
    Queue: "RunnerQueue",
    RunInfo: "Run",
    SubmissionInfo: "Submission",
    Verifying: "Verifies",
}


def test_every_answer_has_its_model() -> None:
    told = {one for one in vars(answers).values() if isinstance(one, type) and one.__module__ == answers.__name__}
    assert told == set(OF)


@pytest.mark.parametrize(("kind", "name"), OF.items())
def test_every_field_is_one_of_the_contract(kind: type, name: str) -> None:
    model: type[BaseModel] = MODELS[name]
    hints, promised = get_type_hints(kind), get_type_hints(model)
    for one in fields(kind):
        key = one.metadata.get("name", one.name)
        assert key in model.model_fields, (kind, one.name)
        if not model.model_fields[key].is_required():
            assert one.default is not MISSING, f"{name} may come without {key}"
        if one.metadata.get("read") is None:
            assert (NoneType in get_args(hints[one.name])) == (NoneType in get_args(promised[key])), (kind, one.name)


@pytest.mark.parametrize(("kind", "name"), OF.items())
def test_the_examples_of_the_contract_are_read(kind: type, name: str) -> None:
    extra: Any = MODELS[name].model_config.get("json_schema_extra") or {}
    if "example" in extra:
        row = dict(extra["example"])
        assert parsed(kind, row) == parsed(kind, {**row, "of_a_newer_server": 1})


def test_values_are_what_they_are_called() -> None:
    extra: Any = MODELS["Submission"].model_config["json_schema_extra"]
    found = parsed(SubmissionInfo, extra["example"])
    (run,) = found.runs
    assert (found.person_id, found.board, found.status, found.error) == (7, "transpose", "succeeded", None)
    assert found.submitted_at == datetime(2026, 5, 1, 12, tzinfo=UTC) and found.queue is None
    assert (run.gpu, run.score_s, run.passed) == ("H100", 0.000041836, True)
    extra = MODELS["Accepted"].model_config["json_schema_extra"]
    took = parsed(Accepted, extra["example"])
    assert (took.submission_id, took.queue.is_available, took.queue.starts_in_s) == (412, True, (40.0, 190.0))
    extra = MODELS["Standing"].model_config["json_schema_extra"]
    place = parsed(StandingInfo, extra["example"])
    assert (place.low_s, place.high_s, place.tied_with) == (0.0000417, 0.000042, (2,))
    extra = MODELS["SubmissionSummary"].model_config["json_schema_extra"]
    assert parsed(SubmissionSummary, extra["example"]).scores == {"H100": 0.000041836}


def test_an_answer_that_lacks_something_is_none() -> None:
    with pytest.raises(KeyError):
        parsed(May, {"host": True, "creator": True})
    assert parsed(PersonInfo, {"id": "7", "name": "ada", "role": "staff", "banned": False}).team is None
