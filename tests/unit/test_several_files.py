"""Submissions of several files: what is accepted, and how they are kept as one text."""

from __future__ import annotations

import stat
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from kbslurm.domain.source import FILES_CAP, SOURCE_CAP, bundled, check_beside, checked_source, directives, files_of
from kbslurm.errors import Invalid, TooLarge
from kbslurm.trial.folder_source import folder_source
from kbslurm_eval.shared import bundle

MAIN = b"#!POPCORN leaderboard double\nfrom parts import half\n"


def zipped(files: dict[str, bytes], *, link: str = "") -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, data in files.items():
            row = zipfile.ZipInfo(name)
            row.external_attr = ((stat.S_IFLNK if name == link else stat.S_IFREG) | 0o644) << 16
            file.writestr(row, data)
    return packed.getvalue()


def test_a_zip_becomes_one_text_with_the_file_that_is_called_first() -> None:
    source = checked_source("mine.zip", zipped({"k/parts/half.py": b"x = 1\r\n", "k/submission.py": MAIN}))
    assert source.file_name == "submission.py"
    assert source.files == {"submission.py": MAIN.decode(), "parts/half.py": "x = 1\r\n"}
    assert directives(source.text).leaderboard == "double"
    assert checked_source(source.file_name, source.text.encode()) == source
    assert files_of(source.file_name, source.text) == source.files
    assert bundle.parts(source.text) == (MAIN.decode(), source.files)


def test_one_file_in_a_zip_is_a_plain_submission() -> None:
    assert checked_source("a.zip", zipped({"a/kernel.py": b"x = 1\n"})).text == "x = 1\n"
    assert bundle.parts("x = 1\n") == ("x = 1\n", {})


def test_a_folder_that_the_entry_names_stays_since_files_may_import_each_other_from_it() -> None:
    files = {"kernels/mine.py": b"from kernels.part import add\n", "kernels/part.py": b"x = 1\n"}
    assert set(bundled(files, "kernels/mine.py").files) == {"kernels/mine.py", "kernels/part.py"}
    assert set(bundled({f"top/{path}": data for path, data in files.items()}, "kernels/mine.py").files) == set(files)
    assert set(bundled(files, "mine.py").files) == {"mine.py", "part.py"}


def test_who_names_no_file_of_a_folder_reads_which_there_are_by_their_whole_paths() -> None:
    with pytest.raises(Invalid, match=r"there is no file 'k/c\.py'") as refused:
        bundled({"k/a.py": b"x", "k/b.py": b"y"}, "k/c.py")
    assert refused.value.hint == "Choose one of: k/a.py, k/b.py."


def test_a_text_that_contains_a_heads_line_doesnt_end_its_file() -> None:
    files = {"main.py": b"#=== other.py\nx = 1", "other.py": b"#!KBSLURM-FILES []\n", "empty.py": b""}
    assert bundled(files).files == {name: data.decode() for name, data in files.items()}


@pytest.mark.parametrize(
    ("files", "entry", "says"),
    [
        ({"../a.py": b"x", "b.py": b"y"}, None, "points outside the zip"),
        ({"/a.py": b"x"}, None, "points outside the zip"),
        ({"a b.py": b"x", "c.py": b"y"}, None, "isn't a valid path"),
        ({"a.py": b"x", "lib.so": b"y"}, None, "lib.so must end in one of"),
        ({"a.py": b"x", "b.py": b"y"}, None, "isn't clear which of the files is called"),
        ({"a.py": b"x", "b.py": b"y"}, "c.py", "there is no file 'c.py'"),
        ({"a/a.py": b"x", "b/b.py": b"y"}, None, "no source file at the top"),
        ({"main.py": b"x", "b.py": b"\xff"}, None, "b.py isn't UTF-8"),
        ({"main.py": b"", "b.py": b"x"}, None, "main.py is empty"),
        ({}, None, "there is no file in it"),
        ({"/".join("abcdefghij") + ".py": b"x", "main.py": b"x"}, None, "isn't a valid path"),
    ],
)
def test_what_cant_be_submitted_is_refused(files: dict[str, bytes], entry: str | None, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        _ = bundled(files, entry) if entry else checked_source("a.zip", zipped(files))


def test_too_many_or_too_much_is_refused() -> None:
    with pytest.raises(TooLarge, match="at most 64 files"):
        bundled({f"f{n}.py": b"x" for n in range(FILES_CAP + 1)}, "f0.py")
    with pytest.raises(TooLarge, match="over the limit of 1,000,000"):
        bundled({"main.py": b"x" * 600_000, "b.py": b"x" * (SOURCE_CAP - 599_999)})
    with pytest.raises(TooLarge, match="unpacks to"):
        checked_source("a.zip", zipped({"main.py": b"x" * (SOURCE_CAP + 1)}))
    with pytest.raises(Invalid, match="isn't a regular file"):
        checked_source("a.zip", zipped({"main.py": b"/etc/passwd"}, link="main.py"))
    with pytest.raises(Invalid, match="the zip can't be read"):
        checked_source("a.zip", b"PK nothing")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('#!KBSLURM-FILES [["a.py", 3]]\n#=== a.py\nx\n', "doesn't contain a.py"),
        ('#!KBSLURM-FILES [["a.py", -1]]\n#=== a.py\nx\n', "first line"),
        ('#!KBSLURM-FILES [["../b.py", 1]]\n#=== ../b.py\nx\n', "isn't a valid path"),
        ('#!KBSLURM-FILES [["b.py", 1]]\n#=== b.py\nx\n', "lists b.py as the file that is called"),
        ('#!KBSLURM-FILES [["a.py", 1], ["a.py", 1]]\n#=== a.py\nx\n#=== a.py\nx\n', "lists a.py twice"),
        ('#!KBSLURM-FILES [["a.py", 1]]\n#=== a.py\nx\nmore', "goes on after its last file"),
        ('#!KBSLURM-FILES [["a.py", 1], ["a.py/b.py", 1]]\n#=== a.py\nx\n#=== a.py/b.py\nx\n', "both a file and a"),
    ],
)
def test_a_text_that_pretends_to_be_several_files_is_refused(text: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        checked_source("a.py", text.encode())


def test_a_file_doesnt_replace_one_of_the_problems() -> None:
    source = bundled({"main.py": b"x = 1", "task.py": b"y = 2"})
    check_beside(source, ("utils.py",))
    with pytest.raises(Invalid, match=r"the problem has a file task.py of its own"):
        check_beside(source, ("task.py",))


def test_a_folder_is_read_without_what_tools_leave_behind(tmp_path: Path) -> None:
    for name in ("main.py", "parts/half.py", ".git/config", "__pycache__/main.pyc", "parts/.DS_Store"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    assert list(folder_source(tmp_path).files) == ["main.py", "parts/half.py"]
    (tmp_path / "linked.py").symlink_to("/etc/passwd")
    with pytest.raises(Invalid, match="isn't a regular file"):
        folder_source(tmp_path)
