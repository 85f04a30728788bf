"""A judge that is gone before its launcher has asked to be told of that."""

from __future__ import annotations

import os

import pytest

from kbslurm_eval.cage import launcher


@pytest.mark.parametrize(("off", "code"), [(0, 7), (1, 0)])
def test_whose_judge_has_ended_already_ends_too(off: int, code: int) -> None:
    """The kernel tells of no parent that was gone before, and a keeper stayed for ever."""
    judge = int(os.readlink("/proc/self"))
    child = os.fork()
    if child == 0:
        launcher._die_with(judge + off)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
