"""`kbslurm problem pull` and `try` of what was pulled: what a competitor gets, and that nothing else ever leaves."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid
from kbslurm.problems import loading
from kbslurm.problems.handout import handout
from kbslurm.store.postgres import PostgresStore
from kbslurm.trial.pulled_board import understood
from kbslurm_eval.shared.wire import Budget
from tests.command_line import CommandLine, Said
from tests.flow.stage import HandClock
from tests.popcorn.served_api import GOOD, TRANSPOSE, WRONG, ServedApi, served, working

EXAMPLES = TRANSPOSE.parent
BRIEF = Budget(launches=2, calls=5, max_calls=5)  # for a test that shows something else than figures
# Numbers and words that are nowhere but in what must not leave.
HIDDEN_N, SIZED_N, SEED = 971_353, 971_357, 886_424_977
JUDGES, TASK_SEED = "only-the-judge-knows-this-5d21", 515_377_919
ONE_FILE = f'''
"""Doubles a number."""
import random

TESTS = [{{"n": 3, "seed": 1}}]
HIDDEN = [
    {{"n": {HIDDEN_N}, "seed": {SEED}}},
    {{"n": 7, "seed": 4}},
]; AFTER = "{JUDGES}"
BASELINE = "ref_kernel"


def generate_input(n, seed):
    return n


def ref_kernel(data):
    return 2 * data


def check_implementation(output, reference):
    return output == reference
'''
COMPILED = f"""
#include "kbslurm.h"
// TESTS = [{{"n": 3, "seed": 1}}]
// HIDDEN = [{{"n": {HIDDEN_N}, "seed": {SEED}}}]
// {JUDGES}
"""


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


class Laptop:
    def __init__(self, api: ServedApi, home: Path) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.run = CommandLine(cwd=home, env={"KBSLURM_URL": api.url, "XDG_CONFIG_HOME": str(home / "conf")})

    def __call__(self, *words: str, **env: str) -> Said:
        return self.run(*words, **env)


@pytest.fixture
def laptop(api: ServedApi, tmp_path: Path) -> Laptop:
    return Laptop(api, tmp_path / "laptop")


def published(api: ServedApi, board: str = "transpose") -> None:
    api.store.boards.edit(board, by="root", publishes_reference=True, now=api.now)


def everything(api: ServedApi, laptop: Laptop, board: str) -> bytes:
    """Every byte that one gets of a board's problem: the call's answer, what the command says, every file."""
    answer = httpx.get(f"{api.url}/leaderboards/{board}/problem", timeout=60)
    assert answer.status_code == 200, answer.text
    said = [laptop("problem", "pull", board, *words, "--force") for words in ((), ("other", "--json"))]
    assert [one.code for one in said] == [0, 0], said[0].err
    files = [file for file in laptop.home.rglob("*") if file.is_file()]
    assert len(files) > 4
    told = "".join(f"{one.out}{one.err}" for one in said).encode()
    return b"\n".join([answer.content, json.dumps(answer.json(), ensure_ascii=False).encode(), told,
                       *(file.read_bytes() for file in files)])  # fmt: skip


def problems(folder: Path) -> dict[str, Problem]:
    """A problem of each format, with secrets in each place where one can be."""
    task = loading.load(TRANSPOSE)
    many = {"rows": HIDDEN_N, "cols": 1, "seed": SEED}
    sizes = {
        "H100": {"tests": ({"rows": 2, "cols": 3, "seed": 5},), "hidden": ({"rows": SIZED_N, "cols": 1, "seed": 1},)}
    }
    reference = f"# {JUDGES}\n{task.files['reference.py']}"
    (folder / "doubled.py").write_text(ONE_FILE)
    return {
        "task": dataclasses.replace(
            task, hidden=(many,), sizes=sizes, seed=TASK_SEED, files={**task.files, "reference.py": reference},
            config={**task.config, "baseline": f"# {JUDGES}\n{GOOD.decode()}"}, warnings=(f"/srv/{JUDGES}: odd",),
            budget=dataclasses.replace(task.budget, launches=9),
        ),
        "one-file": loading.load(folder / "doubled.py"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["task", "one-file"])
@pytest.mark.parametrize("shows", [False, True], ids=["sealed", "published"])
def test_no_hidden_case_no_seed_and_no_sealed_reference_ever_leaves(
    api: ServedApi, laptop: Laptop, tmp_path: Path, kind: str, shows: bool
) -> None:
    board = api.store.boards.add("secret", problems(tmp_path)[kind], gpus=["H100"], publishes_reference=shows)
    secrets = [str(HIDDEN_N), str(SIZED_N), str(SEED), str(TASK_SEED), board.secret_seed]
    secrets.append(board.problem_digest)  # by which a guessed hidden case could be tried
    assert board.problem_digest == board.problem.digest
    stored = json.dumps(dataclasses.asdict(board.problem))
    assert all(one in stored for one in secrets[:1] + secrets[2:3]), "they are there to be found"
    found = everything(api, laptop, "secret")
    for one in secrets:
        assert one.encode() not in found
    assert f"{HIDDEN_N:_}".encode() not in found
    assert (JUDGES.encode() in found) is shows
    assert (b"def generate_input" in found) is shows
    assert b"/srv/" not in found
    told = httpx.get(f"{api.url}/leaderboards/secret/problem", timeout=60).json()
    assert told["hidden"] == {"H100": True}
    if kind == "task":
        assert (told["content"]["budget"]["launches"] == board.problem.budget.launches) is shows


def test_the_hidden_cases_of_a_reference_in_cpp_stay(api: ServedApi, laptop: Laptop, tmp_path: Path) -> None:
    """Also where it defines the types, so that submissions see the file: it is the reference all the same."""
    (hidden,) = ({"n": HIDDEN_N, "seed": SEED},)
    problem = dataclasses.replace(
        loading.load(EXAMPLES / "transpose"), lang="cu", entry="submission.cu", reference="reference.cu",
        files={"reference.cu": COMPILED, "types.h": "struct input_t {};"}, runner_files=("reference.cu", "types.h"),
        hidden=(hidden,), templates={},
    )  # fmt: skip
    api.store.boards.add("compiled", problem, gpus=["H100"], now=api.now)
    sealed = everything(api, laptop, "compiled")
    assert JUDGES.encode() not in sealed and b"struct input_t" in sealed
    published(api, "compiled")
    found = everything(api, laptop, "compiled")
    assert JUDGES.encode() in found and str(HIDDEN_N).encode() not in found and str(SEED).encode() not in found


def test_a_published_reference_takes_no_tensor_of_a_hidden_case_along() -> None:
    """Also where the code puts a tensor's name together; what public cases or the code name in full comes along."""
    problem = loading.load(TRANSPOSE)
    names = ("pub_w", "big_w", "big", "weights")
    tensors = {f"{name}.safetensors": "" for name in names}
    code = problem.files["reference.py"] + '\n# recorded(f"{name}_w"), recorded("weights.safetensors")\n'
    made = dataclasses.replace(
        problem,
        files={**problem.files, "reference.py": code, **tensors},
        tests=(*problem.tests, {"name": "pub_w"}),
        hidden=(*problem.hidden, {"name": "big"}),
    )
    kept = {name for name in handout(made, reference=True).files if name in tensors}
    assert kept == {"pub_w.safetensors", "weights.safetensors"}
    assert not tensors.keys() & handout(made, reference=False).files.keys()


def test_what_is_pulled_is_enough_to_begin_with(api: ServedApi, laptop: Laptop) -> None:
    told = laptop("problem", "pull", "transpose", "--json").json()
    assert told["gpus"] == ["H100", "A100"] and told["kept"] == []
    assert sorted(told["written"]) == ["README.md", "submission.py", "task.py"]
    folder = laptop.home / "transpose"
    readme = (folder / "README.md").read_text()
    for words in ("Transpose a greyscale image", "H100, A100", "cols: 31, rows: 5, seed: 23", "kbslurm submit"):
        assert words in readme
    assert "kbslurm try submission.py" not in readme, "it couldn't judge"
    assert "#!POPCORN leaderboard transpose" in (folder / "submission.py").read_text()
    assert "reference.py" not in [file.name for file in folder.iterdir()]
    published(api)
    said = laptop("problem", "pull", "transpose")
    assert said.code == 0 and "kbslurm try" in said.out and "H100, A100" in said.out
    assert (folder / "reference.py").read_text() == loading.load(TRANSPOSE).files["reference.py"]


def test_a_board_that_one_may_not_see_isnt_pulled(api: ServedApi, laptop: Laptop) -> None:
    published(api)
    api.store.boards.set_visibility("transpose", "closed", by="root", now=api.now)
    told = laptop("problem", "pull", "transpose")
    assert told.code == 2 and "no board 'transpose'" in told.err and not (laptop.home / "transpose").exists()
    assert httpx.get(f"{api.url}/leaderboards/transpose/problem", timeout=60).status_code == 404
    ada = api.store.people.ensure("ada")
    (code,) = api.store.invites.make(["transpose"], 1, by="root", now=api.now)[1]
    api.store.invites.claim(code, ada.id, now=api.now)
    token = api.store.tokens.issue(ada.id, now=api.now)
    assert laptop("problem", "pull", "transpose", KBSLURM_TOKEN=token).code == 0


def test_what_one_has_changed_stays_until_it_is_forced(api: ServedApi, laptop: Laptop) -> None:
    published(api)
    folder = laptop.home / "here"
    assert laptop("problem", "pull", "transpose", "here").code == 0
    (folder / "submission.py").write_bytes(GOOD)
    (folder / "task.py").write_text("mine = 1\n")
    (folder / "notes.txt").write_text("mine, too")
    again = laptop("problem", "pull", "transpose", "here", "--json").json()
    assert (sorted(again["kept"]), again["written"]) == (["submission.py", "task.py"], [])
    said = laptop("problem", "pull", "transpose", "here")
    assert said.code == 0 and "submission.py was changed here" in said.err
    newer = dataclasses.replace(loading.load(TRANSPOSE), tests=({"rows": 2, "cols": 2, "seed": 77},))
    version = api.store.problems.add(newer)
    api.store.boards.set_live("transpose", version)
    assert "README.md" in laptop("problem", "pull", "transpose", "here", "--json").json()["written"]
    assert "seed: 77" in (folder / "README.md").read_text() and (folder / "submission.py").read_bytes() == GOOD
    forced = laptop("problem", "pull", "transpose", "here", "--force", "--json").json()
    assert sorted(forced["written"]) == ["submission.py", "task.py"]
    assert b"NotImplementedError" in (folder / "submission.py").read_bytes()
    assert (folder / "notes.txt").read_text() == "mine, too"


def test_a_file_or_a_link_in_the_way_is_neither_lost_nor_followed(api: ServedApi, laptop: Laptop) -> None:
    (laptop.home / "taken").write_text("a file")
    told = laptop("problem", "pull", "transpose", "taken")
    assert told.code == 2 and "isn't a directory" in told.err
    folder, precious = laptop.home / "linked", laptop.home / "precious.py"
    folder.mkdir()
    precious.write_text("precious")
    (folder / "task.py").symlink_to(precious)
    assert laptop("problem", "pull", "transpose", "linked", "--json").json()["kept"] == ["task.py"]
    assert laptop("problem", "pull", "transpose", "linked", "--force").code == 0
    assert precious.read_text() == "precious" and not (folder / "task.py").is_symlink()


@pytest.mark.parametrize("name", ["../outside.py", "/tmp/outside.py", "a/b.py", "README.md", ".profile", "x\n.py"])
def test_a_service_cant_name_a_file_elsewhere(api: ServedApi, name: str) -> None:
    told: dict[str, Any] = httpx.get(f"{api.url}/leaderboards/transpose/problem", timeout=60).json()
    assert understood(told, None).leaderboard == "transpose"
    for wrong in (
        {**told, "content": {**told["content"], "files": {name: "x"}}},
        {**told, "content": {**told["content"], "entry": name}},
        {**told, "leaderboard": name},
    ):
        with pytest.raises(Invalid, match="isn't written here"):
            understood(wrong, None)
    for broken in ({}, {**told, "content": {}}, {**told, "hidden": 3}, {**told, "baseline_s": {"H100": ["x"]}}):
        with pytest.raises(Invalid, match="can't be understood"):
            understood(broken, None)


def test_without_boards_one_is_told_how_to_get_to_a_services(database_url: str, tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    (tmp_path / "k.py").write_bytes(GOOD)
    for asked in (
        ("problem", "pull", "turn"),
        ("submit", "k.py", "--board", "turn", "--gpu", "H100", "--mode", "test"),
        ("board", "show", "turn", "--mine"),
    ):
        said = kbslurm(*asked)
        assert said.code == 2 and "kbslurm join CODE, or kbslurm login URL" in said.err, said.err


def test_the_same_from_the_database(database_url: str, tmp_path: Path) -> None:
    with PostgresStore(database_url) as store:
        store.boards.add("turn", problems(tmp_path)["task"], gpus=["H100"])
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    said = kbslurm("problem", "pull", "turn", "there", "--json")
    assert said.code == 0, said.err
    assert kbslurm("board", "edit", "turn", "--publish-reference", "--json").json()["changed"] == [
        "publishes_reference"
    ]
    assert "generate_input" not in "".join(file.read_text() for file in (tmp_path / "there").iterdir())
    assert kbslurm("problem", "pull", "turn", "there", "--json").json()["publishes_reference"] is True
    (tmp_path / "there/submission.py").write_bytes(GOOD)
    assert kbslurm("try", "there", "--mode", "test").code == 0
    assert kbslurm("problem", "pull", "nowhere").code == 2


# -------------------------------------------------------------------------------------------------------------- trying


def test_without_the_reference_try_says_what_to_do_instead(api: ServedApi, laptop: Laptop) -> None:
    laptop("problem", "pull", "transpose")
    (laptop.home / "k.py").write_bytes(GOOD)
    for words in (
        ("transpose",),
        ("transpose/submission.py",),
        ("transpose", "k.py"),
        ("k.py", "--board", "transpose"),
    ):
        told = laptop("try", *words)
        assert told.code == 5 and "doesn't publish its reference" in told.err, told.err
        assert "kbslurm submit FILE --board transpose --mode test" in told.err
    missing = laptop("try", "k.py", "--board", "nowhere")
    assert missing.code == 2 and "no board 'nowhere'" in missing.err
    plain = laptop("try", "k.py")
    assert plain.code == 2 and "it isn't said which problem" in plain.err and "--board" in plain.err
    both = laptop("try", "transpose", "k.py", "--board", "transpose")
    assert both.code == 2 and "--board says which problem" in both.err


def test_a_try_at_home_is_the_boards_and_says_that_it_isnt_official(api: ServedApi, laptop: Laptop) -> None:
    published(api)
    (laptop.home / "good.py").write_bytes(GOOD)
    (laptop.home / "wrong.py").write_bytes(WRONG)
    told = laptop("try", "good.py", "--board", "transpose", "--mode", "test", "--json").json()
    board = api.store.boards.get("transpose")
    assert told["verdict"] == "passed"
    home = told["at_home"]
    assert (home["official"], home["board"], home["version"]) == (False, "transpose", board.problem_version_id)
    assert home["harness"]["same"] is True and home["harness"]["here"]
    said = laptop("try", "wrong.py", "--board", "transpose", "--gpu", "a100", "--mode", "test")
    assert said.code == 3 and "unofficial: judged here as board transpose on A100" in said.out
    assert laptop("try", "good.py", "--board", "transpose", "--gpu", "B200").code == 2
    assert laptop("problem", "pull", "transpose").code == 0
    mine = laptop.home / "transpose/submission.py"
    mine.write_bytes(GOOD)
    assert laptop("try", "transpose/submission.py", "--mode", "test").code == 0
    reference = laptop.home / "transpose/reference.py"
    reference.write_text(f"{reference.read_text()}\n# mine\n")
    changed = laptop("try", "transpose", "--mode", "test")
    assert changed.code == 0 and "changed since it was pulled: reference.py" in changed.err
    reference.unlink()
    gone = laptop("try", "transpose", "--mode", "test")
    assert gone.code == 2 and "reference.py is missing" in gone.err and "problem pull" in gone.err
    (laptop.home / "transpose/kbslurm-board.json").write_text("{")
    assert laptop("try", "transpose").code == 2


def test_a_full_try_tells_the_drift_against_the_boards_own_baseline(database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path / "service") as api, working(api, tmp_path / "service"):
        sums = dataclasses.replace(loading.load(EXAMPLES / "one_file/running_sum.py"), budget=BRIEF)
        api.store.boards.add("sums", sums, gpus=["H100"], confirm=False, publishes_reference=True)
        mine = tmp_path / "laptop/mine.py"
        laptop = Laptop(api, tmp_path / "laptop")
        mine.write_text("import itertools\n\n\ndef custom_kernel(data):\n    return list(itertools.accumulate(data))\n")
        before = laptop("try", "mine.py", "--board", "sums", "--json").json()
        assert before["verdict"] == "passed", before["reason"]
        assert (before["at_home"]["drift"], before["at_home"]["hidden_left_out"]) == (None, True)
        assert not any("77" in test["spec"] for test in before["tests"]), "no hidden case ran"
        board = api.store.boards.get("sums")
        api.store.calibrations.tend(api.now)
        while api.store.calibrations.of_board(board)["H100"].state == "calibrating":
            api.store.events.wait(1.0)
        said = laptop("try", "mine.py", "--board", "sums")
        assert said.code == 0 and "drift: the baseline takes" in said.out and "without its hidden cases" in said.out
        drift = laptop("try", "mine.py", "--board", "sums", "--json").json()["at_home"]["drift"]
        assert 0.05 < drift["ratio"] < 20, "it is the same machine"


def test_another_harness_is_told(api: ServedApi, laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbslurm.api.pulled_problem._harness", lambda: "f" * 64)
    published(api)
    (laptop.home / "k.py").write_bytes(GOOD)
    said = laptop("try", "k.py", "--board", "transpose", "--mode", "test")
    assert said.code == 0 and "the harness here isn't the board's" in said.err


# -------------------------------------------------------------------------------------------------------- which Python

IN_PLANTED = """
import planted_package

TESTS = [{"n": 3, "seed": 1}]


def generate_input(n, seed):
    return n


def ref_kernel(data):
    return planted_package.twice(data)


def check_implementation(output, reference):
    return output == reference
"""


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a package that ours hasn't."""
    place = tmp_path_factory.mktemp("python") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "planted_package.py").write_text("def twice(n):\n    return 2 * n\n")
    return place


def test_the_named_python_judges_and_runs(other_python: Path, tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(IN_PLANTED)
    (tmp_path / "mine.py").write_text(
        "import sys, planted_package\n\n\ndef custom_kernel(data):\n    print(sys.prefix)\n"
        "    return planted_package.twice(data)\n"
    )
    kbslurm = CommandLine(cwd=tmp_path)
    for named in (other_python, other_python / "bin/python3"):
        told = kbslurm("try", "problem.py", "mine.py", "--mode", "test", "--python", str(named), "--json").json()
        assert told["verdict"] == "passed", told["reason"]
        assert str(other_python) in told["log"]


def test_a_package_that_is_missing_is_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(IN_PLANTED)
    (tmp_path / "mine.py").write_text("def custom_kernel(data):\n    return 2 * data\n")
    (tmp_path / "torch_mine.py").write_text("import torch, os\n\n\ndef custom_kernel(data):\n    return 2 * data\n")
    kbslurm = CommandLine(cwd=tmp_path)
    told = kbslurm("try", "problem.py", "mine.py")
    assert told.code == 2 and "problem problem needs planted_package (reference.py)" in told.err
    assert f"{shlex.quote(sys.executable)} -m pip install planted_package" in told.err and "--python PATH" in told.err
    (tmp_path / "optional.py").write_text(
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n\n\n"
        "def custom_kernel(data):\n    return 2 * data\n"
    )
    simple = IN_PLANTED.replace("import planted_package\n", "").replace("planted_package.twice(data)", "2 * data")
    (tmp_path / "simple.py").write_text(simple)
    assert kbslurm("try", "simple.py", "optional.py", "--mode", "test").code == 0, "it can do without"
    told = kbslurm("try", "simple.py", "torch_mine.py", "--mode", "test", "--json")
    assert told.code == 2 and "torch_mine.py needs torch, which" in told.json()["error"]["message"]


def test_an_image_that_cant_be_used_is_said(tmp_path: Path) -> None:
    file = str(TRANSPOSE / "submissions/accepted/slices.py")
    kbslurm = CommandLine(cwd=tmp_path, env={"PATH": str(tmp_path)})
    (tmp_path / "cpu.sif").touch()
    for more, said in (
        (("--image", "gone.sif"), "there is no image gone.sif"),
        (("--image", "cpu.sif"), "--image needs Apptainer, and this machine has none"),
        (("--image", "cpu.sif", "--python", sys.executable), "--image has a Python of its own"),
    ):
        told = kbslurm("try", str(TRANSPOSE), file, *more)
        assert told.code == 2 and said in told.err, told.err


def test_what_isnt_a_python_is_said(tmp_path: Path) -> None:
    (tmp_path / "simple.py").write_text(
        IN_PLANTED.replace("import planted_package\n", "").replace("planted_package.twice(data)", "2 * data")
    )
    (tmp_path / "mine.py").write_text("def custom_kernel(data):\n    return 2 * data\n")
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho '[[3, 9, 1], []]'\n")
    old.chmod(0o755)
    kbslurm = CommandLine(cwd=tmp_path)
    for named, words in (
        ("nowhere", "isn't a Python"),
        ("/bin/true", "doesn't run as Python"),
        ("old", "is Python 3.9.1"),
    ):
        told = kbslurm("try", "simple.py", "mine.py", "--python", named)
        assert told.code == 2 and words in told.err, told.err


@pytest.mark.torch
def test_a_problem_in_torch_is_tried_by_a_python_that_has_it(api: ServedApi, laptop: Laptop) -> None:
    import os

    api.store.boards.add("gemm", loading.load(EXAMPLES / "torch_gemm"), gpus=["cpu"], publishes_reference=True)
    mine = EXAMPLES / "torch_gemm/submissions/accepted"
    file = next(iter(sorted(mine.glob("*.py"))))
    words = ("try", str(file), "--board", "gemm", "--mode", "test", "--python", os.environ["KBSLURM_TORCH_PYTHON"])
    said = laptop(*words, "--json")
    assert said.json()["verdict"] == "passed", said.json()["reason"]


def test_torch_that_is_missing_is_one_sentence_with_what_the_boards_image_has(
    database_url: str, tmp_path: Path
) -> None:
    """Our own environment has no torch; what the image has is known from the recipe of its name."""
    toml = '[sites]\nuse = ["della"]\n'
    for place, image in (("eu", "image = '/opt/cuda-7.sif'"), ("lake", "")):
        ways = "url = 'http://127.0.0.1:1'\nservice_url = 'http://127.0.0.1:2'"
        toml += f"[ray.{place}]\n{ways}\n{image}\n[ray.{place}.gpus.A100-80]\n"
    with served(database_url, tmp_path / "service", toml=toml) as api:
        laptop = Laptop(api, tmp_path / "laptop")
        for name, problem in (("gemm", "torch_gemm"), ("turn", "transpose")):
            found = loading.load(EXAMPLES / problem)
            api.store.boards.add(name, found, gpus=["A100-80"], publishes_reference=True)
        (laptop.home / "k.py").write_bytes(GOOD)
        told = laptop("try", "k.py", "--board", "gemm")
        assert told.code == 2 and "needs torch (reference.py)" in told.err and "pip install torch" in told.err
        assert "The board's runs have cuda.sif (torch==" in told.err
        pulled = laptop("problem", "pull", "gemm")
        assert "runs on A100-80 have cuda.sif (torch==" in pulled.out and "triton==" in pulled.out
        assert "cuda.sif (torch==" in (laptop.home / "gemm/README.md").read_text()
        tried = laptop("try", "k.py", "--board", "turn", "--mode", "test")
        assert tried.code == 0 and "the board's runs on A100-80 have cuda.sif (torch==" in tried.out
        images = laptop("problem", "pull", "gemm", "--json").json()["images"]["A100-80"]
        assert [(image["place"], image["image"]) for image in images] == [("della", "cuda.sif"), ("eu", "cuda-7.sif")]
        assert images[0]["packages"] == images[1]["packages"] != [], "their paths on the clusters stay there"


def test_only_who_owns_a_board_publishes_its_reference_and_that_is_noted(api: ServedApi) -> None:
    board, path = api.store.boards.get("transpose"), f"{api.url}/admin/leaderboards/transpose"
    for role, status in (("assistant", 403), ("owner", 200)):
        helper = api.store.people.ensure(role)
        api.store.roster.set_role_on(board.id, helper.id, role, by="root", now=api.now)  # type: ignore[arg-type]
        headers = {"Authorization": f"Bearer {api.store.tokens.issue(helper.id, now=api.now)}"}
        answer = httpx.patch(path, json={"publishes_reference": True}, headers=headers, timeout=60)
        assert answer.status_code == status, answer.text
        assert api.store.boards.get("transpose").publishes_reference is (status == 200)
    told = api.store.events.audit_log(limit=5)[0]
    assert told.data["publishes_reference"] is True and told.data["by"] == "owner"
