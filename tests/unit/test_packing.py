"""A problem that is sent is the problem that was meant: packed, unpacked and loaded it has the same digest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kbslurm.config import shared_folders
from kbslurm.errors import Invalid
from kbslurm.problems import loading, upload
from kbslurm.problems.packing import Packed

EXAMPLES = shared_folders.path("examples")
OURS = Path(__file__).parents[1] / "problems"


def problems() -> list[Path]:
    """Every problem that comes with kbslurm, and those of the tests: folders, and single files."""
    tasks = [task.parent for root in (EXAMPLES, OURS) for task in root.rglob("task.yml")]
    return sorted([*tasks, *(EXAMPLES / "one_file").glob("*.py"), *OURS.glob("*/reference.cu")])


@pytest.mark.parametrize("path", problems(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_arrives_is_what_was_sent(path: Path) -> None:
    sent = Packed(path)
    arrived = upload.loaded(sent.file_name, sent.data, name=sent.name, entry=sent.entry)
    assert (arrived.digest, arrived.name) == (sent.problem.digest, sent.problem.name)
    assert (arrived.description, arrived.templates) == (sent.problem.description, sent.problem.templates)
    assert len(arrived.warnings) == len(sent.problem.warnings)
    assert Packed(path).data == sent.data, "the same files make the same bytes"


def test_a_baseline_beside_its_one_file_comes_along(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "one_file/running_sum.py", tmp_path / "sums.py")
    (tmp_path / "slow.py").write_text("def custom_kernel(data):\n    return data.cumsum(0)\n")
    with (tmp_path / "sums.py").open("a") as file:
        file.write('\nBASELINE = "slow.py"\n')
    (tmp_path / "unrelated.bin").write_bytes(b"x" * 1000)
    sent = Packed(tmp_path / "sums.py")
    assert sent.entry == "sums.py" and sent.problem.baseline is not None
    arrived = upload.loaded(sent.file_name, sent.data, name="sums", entry=sent.entry)
    assert arrived.digest == loading.load(tmp_path / "sums.py").digest
    assert b"unrelated" not in sent.data


@pytest.mark.parametrize("entry", ["../outside/task.yml", "/etc/passwd", "nothing.yml", "", "a\0b"])
def test_only_a_file_of_the_zip_is_loaded(entry: str) -> None:
    sent = Packed(EXAMPLES / "transpose")
    with pytest.raises(Invalid, match="the zip has no file"):
        upload.loaded(sent.file_name, sent.data, name="transpose", entry=entry)
