"""How device code is compiled."""

from __future__ import annotations

from typing import Any

import pytest

from kbslurm_eval.build import compiler

TOLD: dict[str, Any] = {"gpu": "H100", "defines": [], "include_dirs": [], "sources": [], "host_cuda": ""}


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        ([], True),
        (["-O2", "--use_fast_math"], True),
        (["-lineinfo"], False),
        (["-G"], False),
        (["--device-debug"], False),
    ],
)
def test_device_code_has_line_numbers_for_profiles_unless_it_says_otherwise(
    tmp_path: Any, flags: list[str], lines: bool
) -> None:
    argv = compiler._argv("/usr/bin/nvcc", {**TOLD, "flags": flags}, str(tmp_path), "k.so")
    assert argv.count("-lineinfo") == (1 if lines else flags.count("-lineinfo"))
    assert "-arch=sm_90a" in argv and all(flag in argv for flag in flags)


def test_a_host_compiler_is_not_asked_for_them(tmp_path: Any) -> None:
    assert "-lineinfo" not in compiler._argv("/usr/bin/g++", {**TOLD, "flags": ["-lineinfo"]}, str(tmp_path), "k.so")
