"""Why a run is where it is: each reason as a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kbslurm.domain.why import Told, Tried, as_told, sentences

CLUSTER: dict[str, Any] = {"slots": {"H100": 4}, "role": "home", "classes": {"H100": "H100"}}
MODAL: dict[str, Any] = {"slots": {"H100": 9}, "role": "overflow", "classes": {"H100": "H100 at modal"}}
POLICY: dict[str, Any] = {
    "rule": "when_down",
    "other_class": "refuse",
    "currency": "EUR",
    "classes": {"H100": "H100"},
    "boards": {},
    "gpus": {"H100": "cluster works, and overflow is only used when it doesn't"},
}
WAITING = Told(
    run=7,
    submission=3,
    board="sort",
    team="blue",
    gpu="H100",
    state="queued",
    mode="leaderboard",
    by_staff=False,
    gpus=1,
    most_gpu_s=60.0,
    held=False,
    second=False,
    pinned=None,
    waited_s=300.0,
    ahead=2,
    verdict=None,
    ranked=None,
    reason="",
    tries=(),
    open_at={"cluster": 4},
    leader={"places": {"cluster": CLUSTER, "modal": MODAL}, "overflow": POLICY},
)
TRIED = Tried(
    number=1,
    backend="modal",
    state="submitted",
    ending=None,
    reason="",
    why_here="cluster is down (no answer)",
    gpu_class="H100 at modal",
    ranks=False,
    waits="for a GPU",
    wanted_back=False,
    gpu_s=60.0,
    money=0.06,
)


def here(**more: Any) -> dict[str, Any]:
    return {"places": {"cluster": {**CLUSTER, **more}}, "overflow": POLICY}


def away(policy: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"places": {"modal": {**MODAL, **more}}, "overflow": {**POLICY, **(policy or {})}}


AWAY = (
    "attempt 1 went to modal, because cluster is down (no answer); its GPU there, H100 at modal, isn't of the board's"
    " class, so it doesn't rank; it is submitted, for a GPU"
)
DEAR: dict[str, Any] = {"prices": {"H100": 0.01}, "classes": {"H100": "H100"}}
BUDGET: dict[str, Any] = {"month": 2.0, "spent": 1.2, "boards": {"sort": {"month": 1.0, "spent": 0.5}}}
TEAMS: dict[str, Any] = {"team": 1.0, "teams": {"red": {"month": 2.0, "spent": 0.5}}}
SPENT = " with open runs at their maximum; this one may cost 0.60)"
OPEN = {"breaker": {"state": "open", "why": "no answer"}}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (WAITING, "it has waited 5 min; 2 runs for H100 are ahead of it"),
        (WAITING, "cluster: all 4 slots are in use"),
        (WAITING, "modal: its GPUs are H100 at modal, the board's are H100: leaderboard runs don't go there"),
        (WAITING, "overflow (when_down): cluster works, and overflow is only used when it doesn't"),
        (replace(WAITING, ahead=1), "it has waited 5 min; 1 run for H100 is ahead of it"),
        (
            replace(WAITING, leader=here(shut={"H100": "not submitted yet: a limit is reached"})),
            "cluster: it takes no runs for H100 at the moment: not submitted yet: a limit is reached",
        ),
        (
            replace(WAITING, leader=here(pace={"failing": 2, "why": "squeue: mute"})),
            "cluster: its scheduler doesn't answer at the moment: squeue: mute",
        ),
        (replace(WAITING, ahead=0), "it has waited 5 min, and is next"),
        (replace(WAITING, open_at={}), "cluster: 4 of 4 slots are free"),
        (replace(WAITING, mode="test"), "modal: 9 of 9 slots are free"),
        (
            replace(WAITING, held=True),
            "it is on hold until its board's reference times have been measured on this GPU type",
        ),
        (
            replace(WAITING, held=True, second=True),
            "it is waiting for its second measurement; a person's runs are measured one after the other",
        ),
        (replace(WAITING, leader=None), "no daemon is leading: nothing starts until one is"),
        (replace(WAITING, gpu="B200"), "no place here has B200"),
        (replace(WAITING, pinned="cluster"), "modal: not the place that it is pinned to"),
        (
            replace(WAITING, leader=here(widest={"H100": 2}), gpus=4),
            "cluster: a run can have at most 2 GPUs there, this one needs 4",
        ),
        (replace(WAITING, leader=here(staff_only=True)), "cluster: only staff's submissions run there"),
        (replace(WAITING, leader=here(**OPEN)), "cluster: gets no runs at the moment: no answer"),
        (replace(WAITING, leader=here(troubles=2, why="slow")), "cluster: it isn't used for a while: slow"),
        (
            replace(
                WAITING, leader=here(troubles=2, why="here: it lapsed; type: ssh x", lapse="it lapsed; type: ssh x")
            ),
            "cluster: it isn't used for a while: here: it lapsed; a host has to see to it",
        ),
        (replace(WAITING, leader=away({"boards": {"sort": []}})), "modal: the hosts don't let board sort use it"),
        (
            replace(WAITING, leader=away({"boards": {"sort": []}}), pinned="modal"),
            "modal: 9 of 9 slots are free",
        ),
        (
            replace(WAITING, tries=(replace(TRIED, backend="cluster", ending="refused", reason="no such partition"),)),
            "cluster: it permanently refused it: no such partition",
        ),
        (
            replace(WAITING, state="launching", tries=(TRIED,)),
            AWAY,
        ),
        (
            replace(WAITING, leader=away({"budget": BUDGET}, **DEAR), spent=1.5, spent_of_board=0.3),
            f"modal: this month's budget is used up (1.50 of 2.00 EUR{SPENT}",
        ),
        (
            replace(WAITING, leader=away({"budget": BUDGET}, **DEAR), spent=1.2, spent_of_board=0.5),
            f"modal: board sort's budget this month is used up (0.50 of 1.00 EUR{SPENT}",
        ),
        (
            replace(WAITING, leader=away({"budget": BUDGET}, **DEAR), spent=1.2, spent_of_board=0.4),
            "modal: 9 of 9 slots are free",
        ),
        (
            replace(WAITING, leader=away({"budget": TEAMS}, **DEAR), spent=1.2, spent_of_team=0.5),
            f"modal: team blue's budget this month is used up (0.50 of 1.00 EUR{SPENT}",
        ),
        (
            replace(WAITING, leader=away({"budget": TEAMS}, **DEAR), team="red", spent_of_team=0.5),
            "modal: 9 of 9 slots are free",
        ),
        (
            replace(WAITING, leader=away({"budget": TEAMS}, **DEAR), team=None, spent=1.2),
            "modal: 9 of 9 slots are free",
        ),
        (
            replace(WAITING, leader=away({"budget": BUDGET}, classes={"H100": "H100"}), spent=9.0),
            "modal: 9 of 9 slots are free",
        ),
        (replace(WAITING, state="cancelled"), "it was cancelled, so it has no verdict"),
        (replace(WAITING, state="scored", verdict="wrong", reason="test 0"), "it has its verdict, wrong: test 0"),
    ],
)
def test_each_reason_has_its_sentence(told: Told, said: str) -> None:
    assert said in sentences(told)


def test_the_facts_come_with_the_sentences() -> None:
    told = as_told(replace(WAITING, tries=(TRIED,)))
    assert (told["place"], told["currency"], told["attempts"][0]["cost"]) == (3, "EUR", 0.06)
    assert as_told(replace(WAITING, held=True))["place"] is None


def test_money_is_for_the_hosts() -> None:
    spent = replace(WAITING, leader=away({"budget": BUDGET}, **DEAR), spent_of_board=0.5, tries=(TRIED,))
    told = as_told(spent, money=False)
    assert "modal: board sort's budget this month is used up" in told["why"]
    assert "EUR" not in str(told["why"])
    assert told["attempts"][0]["cost"] is None


def test_where_a_run_was_ordered_is_told() -> None:
    assert "it is pinned to cluster and goes nowhere else" in sentences(replace(WAITING, pinned="cluster"))
