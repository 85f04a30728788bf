"""Problems of other collections become directories of ours; small ones of each format, written for this."""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kbslurm.errors import Invalid, NotFound
from kbslurm.problems import loading
from kbslurm.problems.importing import collections, kernelbench
from kbslurm.problems.importing.collections import Imported, chosen, imported
from kbslurm_eval.runner.importing import takes_out

HERE = Path(__file__).parents[1] / "collections"
EACH = {
    "kernelbench": "kernelbench",
    "flashinfer-bench": "flashinfer",
    "tritonbench": "tritonbench",
    "reference-kernels": "reference_kernels",
}


def everything(collection: str, out: Path, *, root: Path | None = None, **options: bool) -> dict[str, Imported]:
    root = root or HERE / EACH[collection]
    return {one.name: imported(one, root, out, **options) for one in chosen(collection, root, None)}


def test_kernelbench_is_called_by_its_class_and_small_where_a_cpu_judges(tmp_path: Path) -> None:
    found = everything("kernelbench", tmp_path)
    assert {name: one.status for name, one in found.items()} == {
        "kernelbench-l1-1_scale_rows": "new",
        "kernelbench-l1-2_no_batch": "new",
        "kernelbench-l1-3_same_twice": "new",
        "kernelbench-l4-1_downloaded": "failed",
    }
    assert "without a network" in found["kernelbench-l4-1_downloaded"].why
    problem = loading.load(tmp_path / "kernelbench-l1-1_scale_rows")
    assert problem.config["wrapper"] == "wrapper.py"
    assert "model.py" in problem.runner_files
    assert "reference.py" not in problem.runner_files
    assert problem.tests == ({"seed": 1}, {"seed": 2})
    assert problem.for_gpu("CPU").tests[0] == {"batch_size": 2, "seed": 1}
    assert problem.for_gpu("H100") is problem
    other = loading.load(tmp_path / "kernelbench-l1-2_no_batch")
    assert other.for_gpu("cpu").benchmarks == ({"N": 128, "seed": 3},)
    twice = loading.load(tmp_path / "kernelbench-l1-3_same_twice")
    assert twice.for_gpu("cpu").benchmarks == ({"batch_size": 64, "input_shape": [64], "seed": 3},)
    assert not any(one.large_on_cpu for one in found.values())


class _Torch(ModuleType):
    """As much of it as the wrapper needs to make a model and to call it."""

    Tensor = type("Tensor", (), {})
    no_grad = contextlib.nullcontext
    device = manual_seed = staticmethod(lambda told: told)


class _Module:
    def to(self, device: str) -> _Module:
        return self

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return getattr(self, "forward")(*inputs, **named)  # noqa: B009 - each has its own


class _Plain(_Module):
    def forward(self, a: int, b: int) -> Any:
        return a, b


class _Placed(_Module):
    def forward(self, a: int, b: int, out: Any = None) -> Any:
        return a, b, out


class _Named(_Module):
    def forward(self, *inputs: int, out: Any) -> Any:
        return *inputs, out


class _SecondInput(_Module):
    def forward(self, a: int, out: int) -> Any:
        return a, out


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(_Plain, (1, 2)), (_Placed, (1, 2, "place")), (_Named, (1, 2, "place")), (_SecondInput, (1, 2))],
)
def test_a_model_whose_forward_asks_for_the_place_of_its_answer_gets_it(
    monkeypatch: pytest.MonkeyPatch, kind: type, answer: Any
) -> None:
    monkeypatch.setitem(sys.modules, "torch", _Torch("torch"))
    monkeypatch.syspath_prepend(str(Path(kernelbench.__file__).parent / "parts"))
    made = ModuleType("made")
    made.Model, made.get_init_inputs, made.ModelNew = _Plain, list, kind  # type: ignore[attr-defined]
    for name in ("kernelbench_model", "kernelbench_wrapper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(importlib.import_module("kernelbench_model"), "module", lambda constants: made)
    call = importlib.import_module("kernelbench_wrapper").entry_point(made)
    given = {"out": "place"} if takes_out(call)[0] else {}
    assert call((42, {}, [1, 2]), **given) == answer
    assert takes_out(call)[0] is (kind is not _Plain)


def test_a_picture_keeps_its_size_on_a_cpu_and_longer_extents_do_not() -> None:
    """A network that halves 224 five times and then pools 7 by 7 has nothing to pool otherwise."""
    tree = ast.parse(
        "batch_size = 10\nheight = 224\nwidth = 512\ndef get_inputs(): return make(batch_size, height, width)\n"
        "def get_init_inputs(): return []\n"
    )
    assert kernelbench.small_sizes(tree) == {"batch_size": 2, "width": 64}


ONE, TWO = "make(batch_size, n)", "make(batch_size, n), make(batch_size)"


@pytest.mark.parametrize(
    ("constants", "inputs", "weights", "small"),
    [
        # a number that the weights have too is another size: Model isn't told the batch
        ("batch_size = 64\nn = 64", ONE, "n", {"batch_size": 2}),
        ("batch_size = 64\nn = 4\nshape = (n * 16, 1)", ONE, "shape", {"batch_size": 2}),
        # unless it is a weight's first length
        ("batch_size = 64\nn = 4\nshape = (64, 1)", ONE, "shape", {}),
        # Model may be told the batch: by the same constant
        ("batch_size = 64\nn = 4", ONE, "batch_size", {"batch_size": 2}),
        ("batch_size = 64\nheight, n = 128, 4", "make(batch_size, height)", "n", {"batch_size": 2, "height": 64}),
        (
            "batch_size = 64\nheight_in = n = 128",
            "make(batch_size, height_in)",
            "n",
            {"batch_size": 2, "height_in": 64},
        ),
        # one shape may have any batch; where they differ, equal lengths stay equal
        ("batch_size = 1024\nn = 1024", ONE, "", {"batch_size": 2}),
        ("batch_size = 1024\nn = 1024", TWO, "", {"batch_size": 64, "n": 64}),
        ("batch_size = 1024\nn = 8, 1024", TWO, "", {"batch_size": 64, "n": [8, 64]}),
        ("batch_size = 1024\nn = batch_size", TWO, "", {"batch_size": 2}),
        ("batch_size = 64\nn = 64", TWO, "", {}),
        ("n = 1 << 30", "make(n)", "", {}),
    ],
)
def test_a_cpu_gets_a_small_batch_that_fits_to_the_rest(
    constants: str, inputs: str, weights: str, small: dict[str, Any]
) -> None:
    functions = f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return [{weights}]\n"
    tree = ast.parse(f"{constants}\n{functions}")
    assert kernelbench.small_sizes(tree) == small
    assert not kernelbench.is_small(tree)


def test_inputs_with_a_small_batch_need_no_other(tmp_path: Path) -> None:
    for inputs, small in (("rand(2, n)", True), ("rand(3, n)", False), ("rand(2, n), rand(n)", False), ("", False)):
        assert kernelbench.is_small(ast.parse(f"def get_inputs():\n    return [{inputs}]\n")) is small
    root = Path(shutil.copytree(HERE / "kernelbench", tmp_path / "there"))
    file = root / "KernelBench/level1/1_Scale_rows.py"
    for batch, large in (("2", False), ("4096", True)):
        text = (HERE / "kernelbench" / file.relative_to(root)).read_text()
        file.write_text(text.replace("rand(batch_size, width)", f"rand({batch}, width)"))
        found = everything("kernelbench", tmp_path / batch, root=root)["kernelbench-l1-1_scale_rows"]
        assert (found.status, found.large_on_cpu) == ("new", large)
        problem = loading.load(tmp_path / batch / found.name)
        assert problem.for_gpu("cpu") is problem


def test_constants_are_replaced_however_they_are_assigned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("a = b = 10\nc, (d, e), *f = 1, (2, 3), 4, 5\ng = (10,)\nh = [a, c, *g]\n")
    monkeypatch.syspath_prepend(str(Path(kernelbench.__file__).parent / "parts"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("kernelbench_model", "model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    made = importlib.import_module("kernelbench_model").module
    told = made({"b": 7, "c": 8, "d": 6, "f": 5, "g": (9,)})
    assert (told.a, told.b, told.d, told.e, told.f, told.h) == (10, 7, 6, 3, 5, [10, 8, 9])
    assert (made({}).b, made({}).d, made({}).f, made({}).h) == (10, 2, [4, 5], [10, 1, 10])


@pytest.mark.parametrize(
    ("forward", "operation"),
    [
        ("torch.matmul(a, b)", "matmul"),
        ("torch.matmul(a.T, b)", "matmul"),
        ("a @ b", "matmul"),
        ("torch.relu(a)", "elementwise"),
        ("torch.nn.functional.leaky_relu(a, negative_slope=self.slope)", "elementwise"),
        ("torch.sum(a, dim=self.dim, keepdim=True)", "reduction"),
        ("torch.nn.functional.scaled_dot_product_attention(a, b, c)", "attention"),
        ("torch.nn.functional.scaled_dot_product_attention(a, b, c, attn_mask=m)", None),
        ("self.conv(a)", None),
        ("torch.triu(torch.matmul(a, b))", None),
        ("torch.matmul(torch.diag(a), b)", None),
        ("a / torch.norm(a)", None),
    ],
)
def test_what_kernelbench_s_forward_is_can_be_told(forward: str, operation: str | None) -> None:
    text = f'class Model:\n    def forward(self, a, b, c):\n        """Says."""\n        return {forward}\n'
    assert kernelbench.operation_of(ast.parse(text)) == operation


def test_flashinfer_bench_takes_workloads_and_recorded_tensors(tmp_path: Path) -> None:
    found = everything("flashinfer-bench", tmp_path)
    assert {name: one.status for name, one in found.items()} == {
        "flashinfer-toy_fp4": "failed",
        "flashinfer-toy_offsets_d4": "new",
        "flashinfer-toy_pick_d4": "new",
    }
    assert "x is float4_e2m1" in found["flashinfer-toy_fp4"].why
    problem = loading.load(tmp_path / "flashinfer-toy_pick_d4")
    assert problem.tests == (
        {"n": 5, "m": 3, "scale": 2.5, "rows": "blob_rows.safetensors#rows", "seed": 1},
    )  # fmt: skip
    assert "blob_rows.safetensors" in problem.files
    assert "blob_rows.safetensors" not in problem.runner_files
    assert "definition_reference.py" not in problem.runner_files
    assert "1 of 2 workloads can't be taken: the recorded tensors blob/gone.safetensors" in problem.description
    drawn = loading.load(tmp_path / "flashinfer-toy_offsets_d4")
    assert "no workload of it is in the collection" in drawn.description
    assert drawn.tests == ({"len_indptr": 8, "total": 8, "seed": 1},)


def test_tritonbench_is_judged_by_the_calls_of_its_test_and_not_ranked(tmp_path: Path) -> None:
    found = everything("tritonbench", tmp_path)
    assert found["tritonbench-t-only_a_class"].status == "failed"
    problem = loading.load(tmp_path / "tritonbench-t-shifted")
    assert problem.tests == ({"call": 0, "seed": 1}, {"call": 1, "seed": 2})
    assert problem.modes == ("test", "benchmark")
    assert not {"operator_file.py", "calls.py", "reference.py"} & set(problem.runner_files)
    assert problem.templates["Python"].endswith("def shifted(x, by=1.0):\n    raise NotImplementedError\n")
    # the file that its test takes the operator from is no longer there
    assert "import math" in problem.files["calls.py"]
    assert "import shifted" not in problem.files["calls.py"]
    assert "import (" not in problem.files["calls.py"]


def test_reference_kernels_become_directories_that_need_nothing_outside(tmp_path: Path) -> None:
    assert everything("reference-kernels", tmp_path)["toys-double"].status == "new"
    problem = loading.load(tmp_path / "toys-double", root=tmp_path / "toys-double")
    assert set(problem.files) == {"reference.py", "same.py", "reference_classes.py"}
    assert problem.files["reference_classes.py"].startswith("import enum\n\n\nclass Sign(enum.Enum):\n    UP = 1\n")
    assert "Unused" not in problem.files["reference_classes.py"]
    assert set(problem.runner_files) == {"reference_classes.py"}
    assert (tmp_path / "toys-double" / "submission.py").is_file()


@pytest.mark.parametrize("source", ["../same.py", "'../same.py'", "../same.py # of all toys", '"../same.py"'])
def test_a_file_of_a_folder_above_is_found_however_yaml_writes_its_place(tmp_path: Path, source: str) -> None:
    root = Path(shutil.copytree(HERE / "reference_kernels", tmp_path / "there"))
    task = root / "problems/toys/double/task.yml"
    rows = f'"source": {source}}}' if "#" not in source else f'"source": ../same.py}} {source.partition(" ")[2]}'
    before = task.read_text()
    task.write_text(before.replace('"source": "../same.py"}', rows))
    found = everything("reference-kernels", tmp_path / "out", root=root)["toys-double"]
    assert (found.status, found.why) == ("new", "")
    task.write_text(before.replace('  - {"name": "same.py", "source": "../same.py"}\n',
                                   f"  - name: same.py\n    source: {source}\n"))  # fmt: skip
    assert everything("reference-kernels", tmp_path / "again", root=root)["toys-double"].status == "new"


def test_importing_again_changes_nothing_and_keeps_what_was_changed(tmp_path: Path) -> None:
    everything("tritonbench", tmp_path)
    place = tmp_path / "tritonbench-t-shifted"
    assert everything("tritonbench", tmp_path)["tritonbench-t-shifted"].status == "unchanged"
    task = place / "task.yml"
    task.write_text(task.read_text() + "# mine\n")
    (place / "notes.md").write_text("mine\n")
    again = everything("tritonbench", tmp_path)["tritonbench-t-shifted"]
    assert (again.status, again.taken) == ("kept", False)
    assert "task.yml" in again.why
    assert task.read_text().endswith("# mine\n")
    assert everything("tritonbench", tmp_path, force=True)["tritonbench-t-shifted"].status == "updated"
    assert not task.read_text().endswith("# mine\n")
    assert (place / "notes.md").read_text() == "mine\n"


def test_a_changed_collection_updates_what_an_import_wrote(tmp_path: Path) -> None:
    root = Path(shutil.copytree(HERE / "tritonbench", tmp_path / "there"))
    everything("tritonbench", tmp_path / "out", root=root)
    file = root / "data/TritonBench_T_v1/shifted.py"
    file.write_text(file.read_text().replace("by=2.5", "by=3.5"))
    preview = everything("tritonbench", tmp_path / "out", root=root, preview=True)["tritonbench-t-shifted"]
    calls = tmp_path / "out/tritonbench-t-shifted/calls.py"
    assert (preview.status, "by=2.5" in calls.read_text()) == ("updated", True)
    assert everything("tritonbench", tmp_path / "out", root=root)["tritonbench-t-shifted"].status == "updated"
    assert "by=3.5" in calls.read_text()


def test_a_directory_that_no_import_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "toys-double").mkdir()
    (tmp_path / "toys-double/task.yml").write_text("mine\n")
    found = everything("reference-kernels", tmp_path)["toys-double"]
    assert found.status == "kept"
    assert (tmp_path / "toys-double/task.yml").read_text() == "mine\n"


def test_a_link_out_of_the_collection_isnt_followed(tmp_path: Path) -> None:
    root = Path(shutil.copytree(HERE / "kernelbench", tmp_path / "there"))
    file = root / "KernelBench/level1/1_Scale_rows.py"
    text = file.read_text()
    file.unlink()
    (tmp_path / "secret.py").write_text(text)
    file.symlink_to(tmp_path / "secret.py")
    found = everything("kernelbench", tmp_path / "out", root=root)["kernelbench-l1-1_scale_rows"]
    assert (found.status, "link out of the collection" in found.why) == ("failed", True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"inputs": {"x": {"shape": ["q"], "dtype": "float32"}}}, "unknown axis q"),
        ({"reference": "def go(x):\n    return x\n"}, "defines no function run"),
        ({"reference": "def run(:\n"}, "isn't Python"),
        ({"axes": {"n": {"type": "odd"}}}, "axis n is neither constant nor variable"),
        ({"outputs": {}}, "has no outputs"),
        ({"inputs": {"x y": {"shape": ["n"], "dtype": "float32"}}}, "isn't a valid name"),
    ],
)
def test_a_faulty_definition_is_told_in_one_sentence(tmp_path: Path, change: dict[str, object], says: str) -> None:
    good = json.loads((HERE / "flashinfer/definitions/toy/toy_pick_d4.json").read_text())
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions/toy_pick_d4.json").write_text(json.dumps(good | change))
    (found,) = everything("flashinfer-bench", tmp_path / "out", root=tmp_path).values()
    assert found.status == "failed"
    assert says in found.why
    assert not (tmp_path / "out").exists()


def test_what_isnt_there_is_told() -> None:
    with pytest.raises(NotFound, match="collection"):
        chosen("nonsense", HERE, None)
    with pytest.raises(Invalid, match="there is no problem of kernelbench"):
        chosen("kernelbench", HERE / "tritonbench", None)
    with pytest.raises(Invalid, match="none of the 4 problems matches 'xyz'"):
        chosen("kernelbench", HERE / "kernelbench", "xyz")
    assert {one.name for one in chosen("kernelbench", HERE / "kernelbench", "*l1*")} == {
        "kernelbench-l1-1_scale_rows",
        "kernelbench-l1-2_no_batch",
        "kernelbench-l1-3_same_twice",
    }
    assert set(collections.COLLECTIONS) == set(EACH)
