"""Whatever stands in a problem's files, the answer is a problem or one clear sentence."""

from __future__ import annotations

import ast
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kbslurm.domain.manifest import manifest_for, manifest_text
from kbslurm.domain.problem import as_json, from_json
from kbslurm.domain.source import checked_source, directives
from kbslurm.errors import Invalid
from kbslurm.problems.loading import load
from kbslurm.problems.marked_yaml import FLOAT_WITHOUT_A_DOT, parsed_yaml
from kbslurm.problems.problem_set import ENTRY_KEYS, SET_KEYS, load_set
from kbslurm.problems.python_code import parsed_code
from kbslurm.problems.task_yml import OWN_KEYS, TASK_KEYS
from kbslurm_eval.shared.wire import Mode, read_manifest

T = TypeVar("T")
REFERENCE = "def generate_input(**case): ...\ndef ref_kernel(data): ...\ndef check_implementation(data, output): ...\n"
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [
            "py",
            "cu",
            "geom",
            "reference.py",
            "task.py",
            "@SUBMISSION@",
            "submission.py",
            "../x",
            "/",
            ".",
            "standard",
            "test",
        ]
    )
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
cases = st.lists(st.dictionaries(st.sampled_from(["n", "seed", "x y", ""]), scalars, max_size=3), max_size=3)
SOUND: dict[str, Any] = {
    "files": [
        {"name": "submission.py", "source": "@SUBMISSION@"},
        {"name": "reference.py", "source": "reference.py"},
    ],
    "tests": [{"n": 1, "seed": 2}],
    "benchmarks": [{"n": 2, "seed": 3}],
}


def given_or_refused(make: Callable[[], T]) -> T | Invalid:
    """What it gives, or how it was refused; any other error is a find."""
    try:
        return make()
    except Invalid as error:
        return error


@given(st.text(max_size=80))
def test_any_text_is_yaml_or_invalid(text: str) -> None:
    found = given_or_refused(lambda: parsed_yaml(text, Path("t.yml")))
    if isinstance(found, Invalid):
        assert found.message.startswith("t.yml")
    else:
        assert found.line >= 1


class _Dumper(yaml.SafeDumper):
    """Quotes a string that is a number to our reader, as people have to."""


_Dumper.add_implicit_resolver(*FLOAT_WITHOUT_A_DOT)


@given(values)
@example("0E0")
@example(["1e6", 1e6])
def test_what_yaml_wrote_is_read_back(value: Any) -> None:
    try:
        found = parsed_yaml(yaml.dump(value, Dumper=_Dumper), Path("t.yml")).unmarked()
    except Invalid:
        return
    assert found == value


@given(
    st.dictionaries(st.sampled_from(sorted(TASK_KEYS)), values, max_size=4),
    st.dictionaries(st.sampled_from(sorted(OWN_KEYS)), values, max_size=3),
    cases,
)
def test_any_task_is_a_problem_or_invalid(odd: dict[str, Any], own: dict[str, Any], tests: list[Any]) -> None:
    raw = {**SOUND, **({"tests": tests} if tests else {}), **({"kbslurm": own} if own else {}), **odd}
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "reference.py").write_text(REFERENCE)
        (Path(place) / "task.yml").write_text(yaml.safe_dump(raw))
        problem = given_or_refused(lambda: load(Path(place), root=Path(place)))
    if isinstance(problem, Invalid):
        assert str(problem.file or "").endswith(("task.yml", "reference.py"))
        assert "\n" not in problem.message
        return
    assert from_json(as_json(problem)) == problem
    assert "reference.py" not in problem.runner_files
    mode: Mode = "test"
    if mode in problem.modes:
        manifest = manifest_for(
            problem, token="t", attempt=1, nonce="n", mode=mode, gpu="g", source="s", secret_seed="0"
        )
        assert read_manifest(manifest_text(manifest)) == manifest


@given(
    st.dictionaries(st.sampled_from(sorted(SET_KEYS)), values, max_size=4),
    st.lists(st.dictionaries(st.sampled_from(sorted(ENTRY_KEYS)), values, max_size=4), max_size=2),
)
def test_any_set_is_a_set_or_invalid(odd: dict[str, Any], entries: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "set.yaml"
        file.write_text(yaml.safe_dump({"problems": entries, **odd}))
        found = given_or_refused(lambda: load_set(file, root=Path(place)))
    if isinstance(found, Invalid):
        assert str(found.file or "").endswith("set.yaml")
        return
    assert all(entry.directory.is_relative_to(found.root) for entry in found.problems)


@given(st.text(max_size=200))
def test_any_text_is_python_or_invalid(text: str) -> None:
    code = given_or_refused(lambda: parsed_code(text, Path("a.py"), "a.py"))
    if isinstance(code, Invalid):
        assert str(code.file) == "a.py" and re.match(r"a\.py(:\d+)?: not valid Python: ", str(code))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ast.dump(code.tree) == ast.dump(ast.parse(text))
    found = code.function("f")
    assert found is None or found.name == "f"
    assert all(isinstance(name, str) for name in [*code.imports(), *code.names_from("submission")])


@given(st.text(max_size=40), st.binary(max_size=200))
def test_any_file_is_a_source_or_invalid(name: str, data: bytes) -> None:
    try:
        source = checked_source(name, data)
    except Invalid:
        return
    assert source.text.encode() == data
    assert "/" not in source.file_name


@given(st.text(alphabet="#!POPCORNpopcorn leaderboardgpus\n/\t,ab", max_size=120))
def test_any_comment_block_has_directives_or_is_invalid(text: str) -> None:
    try:
        found = directives(text)
    except Invalid:
        return
    assert found.leaderboard is None or found.leaderboard == found.leaderboard.lower()
    assert len({gpu.lower() for gpu in found.gpus}) == len(found.gpus)
