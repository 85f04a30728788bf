"""What a Ray cluster's API says, compared with the configuration; and answers that aren't what they should be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.backends.ray import pool_check
from kbslurm.backends.ray.pool_check import Autoscaler, Node, autoscaler_in, findings, gpu_finding, nodes_in
from kbslurm.domain.finding import Finding, Grade
from tests.unit.test_ray_pool import AWS, GPUS, OWN, pool_of

STATUS = """\
======== Autoscaler status: 2026-11-28 01:52:25.828000 ========
Node status
---------------------------------------------------------------
Active:
 2 spot
Idle:
 1 head
Pending:
 steady, 1 launching
Recent failures:
 spot: NodeTerminated (instance_id: i-07)\x1b[31m
 steady: LaunchFailed (latest_attempt: 02:46:45) - Insufficient capacity

Resources
---------------------------------------------------------------
Total Usage:
 2.0/2.0 H100

From request_resources:
 (none)
Pending Demands:
 {'B200': 1.0}: 1+ pending tasks/actors
"""


def answer(text: Any) -> Any:
    return {"result": True, "data": {"clusterStatus": text}}


def worker(kind: str = "", **resources: float) -> Node:
    return Node(is_head=False, resources=resources, labels={"kbslurm.pool": kind} if kind else {})


HEAD = Node(is_head=True, resources={}, labels={"kbslurm.pool-file": "1" * 16})
UP = Autoscaler(kinds={"head": 1})


def said(section: Any, *workers: Node, told: Autoscaler | None = UP) -> dict[tuple[str, str], tuple[Grade, str]]:
    found = findings("eu", {"H100": GPUS["H100"]}, section, [HEAD, *workers], told, "1" * 16)
    return {(one.name, one.where): (one.grade, one.text) for one in found}


def test_the_autoscalers_own_words_are_read() -> None:
    told = autoscaler_in(answer(STATUS))
    assert told is not None and dict(told.kinds) == {"spot": 2, "head": 1}
    assert told.pending == ("steady, 1 launching",)
    assert told.failures[1] == "steady: LaunchFailed (latest_attempt: 02:46:45) - Insufficient capacity"
    assert "\x1b" not in told.failures[0], "nobody's terminal is painted"
    quiet = STATUS.partition("Pending:")[0] + "Pending:\n (no pending nodes)\nRecent failures:\n (no failures)\n"
    told = autoscaler_in(answer(quiet))
    assert told is not None and (told.pending, told.failures) == ((), ())


@pytest.mark.parametrize("odd", [None, 7, [], {}, answer(None), answer(7), answer("No cluster status."), {"data": []}])
def test_no_word_of_the_autoscaler_is_no_autoscaler(odd: Any) -> None:
    assert autoscaler_in(odd) is None
    grade, text = said(pool_of(AWS), told=autoscaler_in(odd))["autoscaler", ""]
    assert grade is Grade.FAIL and "no worker is started or stopped" in text


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
rows = st.fixed_dictionaries({"state": st.just("ALIVE"), "resources_total": junk, "labels": junk, "is_head_node": junk})


@given(st.lists(rows | junk, max_size=4))
def test_odd_rows_are_read_as_nodes_that_offer_nothing_they_didnt_say(told: list[Any]) -> None:
    found = nodes_in({"data": {"result": {"result": told}}})
    assert found is not None
    for node in found:
        assert all(0 <= amount < 1e18 for amount in node.resources.values())
        list(findings("eu", GPUS, pool_of(AWS), [node], UP, ""))
        gpu_finding("eu", "H100", GPUS["H100"], 4, None, found)


@pytest.mark.parametrize("odd", [None, [], {"data": {"result": {"result": {}}}}, "x"])
def test_what_isnt_a_list_of_nodes_is_none(odd: Any) -> None:
    assert nodes_in(odd) is None


def test_dead_nodes_dont_count() -> None:
    told = {"data": {"result": {"result": [{"state": "DEAD", "resources_total": {"H100": 1}, "labels": {}}]}}}
    assert nodes_in(told) == []


def of_type(section: Any, *workers: Node, slots: int = 4) -> Finding:
    return gpu_finding("eu", "H100", GPUS["H100"], slots, section, [HEAD, *workers])


def test_runs_that_nobody_would_ever_take_are_a_failure() -> None:
    without = pool_of(AWS.replace('gpu = "H100"', 'gpu = "A100"'))
    assert of_type(without).grade is Grade.FAIL
    assert of_type(pool_of(OWN)).grade is Grade.FAIL, "own machines aren't started when runs wait"
    later = of_type(pool_of(AWS))
    assert later.grade is Grade.PASS and "workers for 20 at once are started when needed" in later.text
    assert of_type(None).grade is Grade.CAUTION, "somebody else's autoscaler may start one"
    assert of_type(None, worker(GPU=1, H100=1), slots=2).text == "1 at once with GPU 1, H100 1"
    assert of_type(None, worker(GPU=1, H100=0.5)).grade is Grade.CAUTION
    assert of_type(pool_of(AWS), worker(GPU=1, H100=1)).text == "1 at once with GPU 1, H100 1, up to 20 when needed"


def test_many_more_slots_than_workers_are_told() -> None:
    assert "but 4 slots" in of_type(None, worker(GPU=1, H100=1)).text
    assert of_type(None, worker(GPU=2, H100=2)).grade is Grade.PASS
    assert of_type(pool_of(AWS), worker(GPU=1, H100=1), slots=40).grade is Grade.PASS
    assert of_type(pool_of(AWS), worker(GPU=1, H100=1), slots=41).grade is Grade.CAUTION


def test_a_head_of_other_hands_and_machines_that_differ_are_told() -> None:
    by_hand = Autoscaler(kinds={"node_b613": 1})
    assert said(pool_of(AWS), told=by_hand)["autoscaler", ""][0] is Grade.FAIL
    found = said(pool_of(AWS), worker("steady", GPU=8, H100=4), worker("gone", GPU=1), worker(GPU=1))
    assert ("steady" in {where for name, where in found}) and found["pool", "gone"][0] is Grade.CAUTION
    nodes = [HEAD, worker("steady", GPU=8, H100=4), worker(GPU=1)]
    texts = [one.text for one in findings("eu", GPUS, pool_of(AWS), nodes, UP, "")]
    assert "1 node added by hand" in texts
    assert "a node of this kind offers 4 H100 instead of 8" in texts
    assert "it was started from another file than the configuration gives now" in texts


def test_more_than_max_in_all_is_told_even_if_each_kind_keeps_its_own() -> None:
    bounded = pool_of(AWS.replace("key_file", "max = 1\nkey_file", 1))
    found = [one.text for one in findings("eu", GPUS, bounded, [HEAD, worker("spot"), worker("steady")], UP, "")]
    assert "2 workers run, more than max = 1 in all" in found


def test_what_couldnt_be_started_lately_is_told() -> None:
    told = autoscaler_in(answer(STATUS))
    texts = [one.text for one in findings("eu", GPUS, pool_of(AWS), [HEAD], told, "1" * 16)]
    assert any("Insufficient capacity" in text for text in texts)
    assert pool_check.STATUS.endswith("format=1"), "the other form is empty with Ray's second autoscaler"
