"""The first wrong element, out of the sentence that the judge says it in."""

from __future__ import annotations

import numpy as np

from kbslurm.domain.first_difference import FirstDifference, of_message
from kbslurm_eval.judge import first_wrong
from kbslurm_eval.judge.output_checks import Tolerance
from kbslurm_eval.shared import values


def test_the_judges_own_sentence_is_read() -> None:
    """The two belong together: if the judge's sentence changes, this one fails."""
    want = np.arange(64, dtype=np.float32).reshape(8, 8)
    got = want.copy()
    got[2, 5] = 0.25
    said = first_wrong.told(got, want, Tolerance(rtol=1e-5, atol=1e-8), values.pack(0))
    found = of_message(f"the answer is wrong; {said}")
    assert found is not None
    assert (found.where, found.wrong, found.whole) == ("output[2, 5]", 1, 64)
    assert (float(found.got), float(found.want)) == (0.25, 21.0)


def test_a_pattern_is_told_apart_from_the_tolerance() -> None:
    said = (
        "the first element that differs from the reference's answer is output[0]: 0, not 3; 8 of 8 differ by more than "
        "rtol 1e-05, atol 1e-08; every one is 0; was the answer written?"
    )
    assert of_message(said) == FirstDifference(
        where="output[0]",
        got="0",
        want="3",
        wrong=8,
        whole=8,
        by="differ by more than rtol 1e-05, atol 1e-08",
        pattern="every one is 0; was the answer written?",
    )


def test_another_sentence_is_none() -> None:
    assert of_message("it ended with exit code 1") is None
    assert of_message("") is None
