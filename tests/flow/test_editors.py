"""Where people write kernels: a notebook in a real kernel, git's hook in a real repository, the editor's tasks."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from kbslurm.cli.output.interval_plot import Timed, svg
from tests.command_line import CommandLine
from tests.popcorn.served_api import GOOD, TRANSPOSE, WRONG, ServedApi, served, working
from tests.services import GIT, SHELLCHECK, needs

EXAMPLES = TRANSPOSE.parent
NOTEBOOK = EXAMPLES / "notebook" / "kernels.ipynb"
HOOK = EXAMPLES / "git-hooks" / "pre-push"
TASKS = EXAMPLES / "vscode" / "tasks.json"
BOOKS: Any = nbformat  # has no types


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service") as built:
        yield built


@pytest.fixture
def signed_in(api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServedApi:
    """Kernels inherit this environment."""
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    at_home(tmp_path, monkeypatch)
    monkeypatch.setenv("KBSLURM_URL", api.url)
    monkeypatch.setenv("KBSLURM_TOKEN", token)
    return api


def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        (tmp_path / name.lower()).mkdir(exist_ok=True)
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")


def ran(book: Any, place: Path) -> list[dict[str, Any]]:
    """The code cells, each with its outputs."""
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(place)}}).execute()
    return [cell for cell in book.cells if cell.cell_type == "code"]


def cells(*sources: str) -> Any:
    return BOOKS.v4.new_notebook(cells=[BOOKS.v4.new_code_cell(source) for source in sources])


def result(cell: Any) -> tuple[str, str]:
    """A cell's value as text and as HTML."""
    (found,) = [one for one in cell.outputs if one.output_type == "execute_result"]
    return found.data["text/plain"], found.data.get("text/html", "")


def test_the_example_runs_from_its_top_to_its_end(signed_in: ServedApi, tmp_path: Path) -> None:
    book = BOOKS.read(NOTEBOOK, as_version=4)
    BOOKS.validate(book)
    assert all(not cell.get("outputs") for cell in book.cells), "it is kept without outputs"
    with working(signed_in, tmp_path):
        _, tried, submitted, computed, evaluated = ran(book, NOTEBOOK.parent)
    assert result(tried)[0].startswith("tried here by ../transpose, test\n   cpu  passed")
    text, drawn = result(submitted)
    assert text.startswith("#1 submission.py on transpose, benchmark\n  H100  passed")
    figure = ET.fromstring(drawn[drawn.index("<svg") : drawn.index("</svg>") + len("</svg>")])
    assert len([one for one in figure.iter() if one.tag.endswith("circle")]) == 2, "a line for each benchmark"
    assert "('H100', 'passed', " in result(computed)[0]
    times = eval(result(evaluated)[0], {})
    assert set(times) == {"step 1", "step 8", "step 64"} and all(took > 0 for took in times.values())


def test_a_notebook_goes_from_an_invitation_to_a_rank(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(tmp_path, monkeypatch)
    for name in ("KBSLURM_URL", "KBSLURM_TOKEN", "KBSLURM_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    with served(database_url, tmp_path / "service") as api, working(api, tmp_path / "service"):
        api.store.boards.set_visibility("transpose", "closed", by="root")
        api.store.boards.edit("transpose", by="root", publishes_reference=True)
        code = api.store.invites.make(["transpose"], 1, by="root", newcomers=True, now=api.now)[1][0]
        kbslurm = f"!{shlex.quote(sys.executable)} -m kbslurm"
        book = cells(
            f"{kbslurm} join {code} {api.url} --name ada",
            f"{kbslurm} problem pull transpose",
            "%load_ext kbslurm",
            f"%%try transpose --mode test\n{GOOD.decode()}",
            f"%%submit transpose -g H100\n{GOOD.decode()}",
        )
        joined, pulled, _, tried, submitted = ran(book, tmp_path)
    said = ["".join(one.get("text", "") for one in cell["outputs"]) for cell in (joined, pulled)]
    assert "ada" in said[0] and "is in transpose" in said[1], said
    assert "passed" in result(tried)[0]
    text, drawn = result(submitted)
    assert "H100: rank 1 of 1" in text and "H100: rank 1 of 1" in drawn, text


def test_a_rejected_cell_says_what_is_wrong(signed_in: ServedApi, tmp_path: Path) -> None:
    wrong = WRONG.decode()
    book = cells(
        "%load_ext kbslurm",
        f"%%try {shlex.quote(str(TRANSPOSE))} --mode test\n{wrong}",
        f"%%submit transpose -g H100 -m test\n{wrong}",
    )
    with working(signed_in, tmp_path):
        _, tried, submitted = ran(book, tmp_path)
    for cell in (tried, submitted):
        text, drawn = result(cell)
        assert "wrong" in text and "test 3 (" in text and "Read the failures" in text and "<pre>test 3" in drawn


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%submit nowhere\nx = 1", "there is no board 'nowhere'"),
        ("%%submit transpose --mode fast\nx = 1", "invalid choice: 'fast'"),
        ("%%submit\nx = 1", "the following arguments are required: BOARD. %%submit"),
        ("%%submit transpose 'x\nx = 1", "the line can't be read"),
        ("%%try nowhere\nx = 1", "nowhere"),
    ],
)
def test_what_is_refused_is_one_sentence(signed_in: ServedApi, tmp_path: Path, cell: str, words: str) -> None:
    book = cells("%load_ext kbslurm", cell)
    try:
        ran(book, tmp_path)
    except CellExecutionError as error:
        raised = str(error)
    else:
        raised = ""
    told = "".join(one.get("text", "") for one in book.cells[1].outputs) + raised
    assert "UsageError" in told and words in told and "Traceback" not in told, told
    with signed_in.store._pool.statement() as connection:
        assert connection.execute("SELECT 1 FROM submission").fetchone() is None


def test_without_a_service_a_cell_says_how_to_sign_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home(tmp_path, monkeypatch)
    for name in ("KBSLURM_URL", "KBSLURM_TOKEN", "KBSLURM_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    book = cells("%load_ext kbslurm", "%%submit transpose\nx = 1")
    told = ""
    try:
        ran(book, tmp_path)
    except CellExecutionError as error:
        told = str(error)
    told += "".join(one.get("text", "") for one in book.cells[1].outputs)
    assert "no service is in use" in told and "kbslurm login" in told


class TestPlot:
    def test_it_is_one_figure_whatever_its_labels_say(self) -> None:
        rows = [
            Timed(label="<script>" * 9, median_s=2e-6, low_s=1.8e-6, high_s=2.2e-6),
            Timed(label="b", median_s=1.8e-6, low_s=None, high_s=None),
        ]
        figure = ET.fromstring(svg(rows))
        texts = [one.text for one in figure.iter() if one.tag.endswith("}text")]
        assert texts[1] == "2.00 µs +0.20 −0.20" and texts[2:] == ["b", "1.80 µs"]
        assert not [one for one in figure.iter() if one.tag.endswith("script")]
        interval = next(one for one in figure.iter() if one.get("stroke-width"))
        low, high = float(interval.get("x1") or 0), float(interval.get("x2") or 0)
        dots = [float(one.get("cx") or 0) for one in figure.iter() if one.tag.endswith("circle")]
        assert low < dots[0] < high and dots[1] == low

    def test_nothing_is_no_figure(self) -> None:
        assert svg([]) == ""


@needs(GIT)
class TestHook:
    @pytest.fixture
    def repository(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        for name, value in (("GIT_CONFIG_GLOBAL", os.devnull), ("GIT_CONFIG_NOSYSTEM", "1")):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        place = tmp_path / "mine"
        for argv in (["init", "-q", "--bare", str(tmp_path / "there")], ["init", "-q", str(place)]):
            subprocess.run(["git", *argv], check=True)
        for words in (
            ("user.name", "Ada"), ("user.email", "a@example.org"), ("kbslurm.problem", str(TRANSPOSE)),
        ):  # fmt: skip
            git(place, "config", *words)
        git(place, "remote", "add", "origin", str(tmp_path / "there"))
        shutil.copy(HOOK, place / ".git" / "hooks" / "pre-push")
        return place

    def test_it_lets_a_good_kernel_through_and_stops_a_wrong_one(self, repository: Path) -> None:
        (repository / "kernel.py").write_bytes(GOOD)
        (repository / "notes.txt").write_text("no kernel")
        git(repository, "add", ".")
        git(repository, "commit", "-qm", "A kernel")
        first = pushed(repository)
        assert first.returncode == 0 and "trying kernel.py" in first.stderr and "notes" not in first.stderr

        (repository / "kernel.py").write_bytes(WRONG)
        git(repository, "commit", "-qam", "A quicker one")
        (repository / "kernel.py").write_bytes(GOOD)  # what counts is what is pushed
        refused = pushed(repository)
        assert refused.returncode == 1 and "kernel.py was rejected" in refused.stderr
        assert "wrong" in refused.stderr

        git(repository, "commit", "-qam", "Back")
        git(repository, "commit", "-q", "--allow-empty", "-m", "Nothing")
        assert pushed(repository).returncode == 0

    def test_it_asks_once_which_problem(self, repository: Path) -> None:
        git(repository, "config", "--unset", "kbslurm.problem")
        git(repository, "commit", "-q", "--allow-empty", "-m", "Nothing")
        asked = pushed(repository)
        assert asked.returncode == 1 and "git config kbslurm.problem DIR" in asked.stderr

    @needs(SHELLCHECK)
    def test_it_passes_shellcheck_and_is_executable(self) -> None:
        said = subprocess.run(["shellcheck", str(HOOK)], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stdout
        assert os.access(HOOK, os.X_OK)


def git(place: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(place), *words], check=True)


def pushed(place: Path) -> subprocess.CompletedProcess[str]:
    argv = ["git", "-C", str(place), "push", "-q", "origin", "HEAD:main"]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_the_editor_s_tasks_are_commands_that_are_there(tmp_path: Path) -> None:
    """With each value that the editor would fill in, the command line is read, and its file is what it misses."""
    told = json.loads(TASKS.read_text())
    filled = {"input:problem": str(TRANSPOSE), "input:board": "b", "input:submission": "1", "file": "gone.py"}
    inputs = {one["id"]: one for one in told["inputs"]}
    assert inputs["mode"]["options"] == ["test", "benchmark", "profile", "leaderboard"]
    run = CommandLine(cwd=tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path), "KBSLURM_URL": "http://127.0.0.1:9"})
    assert len(told["tasks"]) == 4
    for task in told["tasks"]:
        assert task["command"] == "kbslurm" and task["type"] == "process"
        argv = [filled.get(word.removeprefix("${").removesuffix("}"), word) for word in task["args"]]
        said = run(*["test" if word == "${input:mode}" else word for word in argv])
        assert ("gone.py" in said.err) if "${file}" in task["args"] else ("aren't signed in" in said.err), said.err
        assert "No such option" not in said.err and "unexpected" not in said.err
