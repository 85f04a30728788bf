"""The walls between the packages, and the traps that the tree's shape would set."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
CONCRETE = {
    "kbslurm.backends.github",
    "kbslurm.backends.local",
    "kbslurm.backends.modal",
    "kbslurm.backends.slurm",
    "kbslurm.store.postgres",
}


def test_imports_go_down_and_never_up() -> None:
    # A process of its own: it silences every logger that it finds, and later tests listen to ours.
    program = Path(sys.executable).with_name("lint-imports")
    asked = [str(program), "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph("kbslurm", "kbslurm_bot", "kbslurm_eval", cache_dir=None)
    order = TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})
    assert set(order.static_order()) >= graph.modules  # or a CycleError that names the circle


def test_the_walls_are_those_of_the_design() -> None:
    """A contract that is loosened to let something pass has to be loosened here too, where a reviewer sees it."""
    linted = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contracts = {contract["id"]: contract for contract in linted["contracts"]}
    floors = contracts["floors"]
    assert floors["containers"] == ["kbslurm"] and floors["exhaustive"] is True and "exhaustive_ignores" not in floors
    assert floors["layers"] == [
        "__main__",
        "cli",
        "daemon | api",
        "wiring",
        "trial",
        "backends | store | problems",
        "flow | client",
        "contract",
        "config | images | observe | kernelguard",
        "ports",
        "domain",
        "errors",
    ]
    assert contracts["alone"] == {
        "id": "alone",
        "name": "the service knows nothing of the bot",
        "type": "forbidden",
        "source_modules": ["kbslurm"],
        "forbidden_modules": ["kbslurm_bot"],
    }
    assert set(contracts["bot"]["forbidden_modules"]) == {
        "kbslurm.store",
        "kbslurm.backends",
        "kbslurm.flow",
        "kbslurm.wiring",
    }
    assert contracts["pure"]["source_modules"] == ["kbslurm.domain", "kbslurm_eval.shared.wire"]
    assert set(contracts["pure"]["forbidden_modules"]) == {
        "sqlalchemy",
        "discord",
        "httpx",
        "subprocess",
        "asyncio",
        "time",
    }
    assert contracts["contract"]["source_modules"] == ["kbslurm.contract"]
    assert set(contracts["contract"]["forbidden_modules"]) == {"fastapi", "starlette", "httpx", "sqlalchemy"}
    assert contracts["harness"]["source_modules"] == ["kbslurm_eval"]
    assert contracts["harness"]["forbidden_modules"] == ["kbslurm"]
    for name, container in (("harness-floors", "kbslurm_eval"), ("bot-floors", "kbslurm_bot")):
        floors = contracts[name]
        assert floors["containers"] == [container] and floors["exhaustive"] is True
        assert floors["type"] == "layers" and "exhaustive_ignores" not in floors
    assert contracts["bot-floors"]["layers"][1:4] == ["check | discord_client", "buttons | mentions", "commands"]
    assert contracts["harness-floors"]["layers"] == ["run", "judge | runner", "build | cage | device", "shared"]
    assert not [contract for contract in contracts.values() if contract.get("ignore_imports")]


def test_only_wiring_knows_every_concrete_class() -> None:
    """Whoever names two of the adapters is a second place to change when one is added."""
    for file in sorted((ROOT / "kbslurm").rglob("*.py")):
        if file.name == "wiring.py":
            continue
        named = {".".join(name.split(".")[:3]) for name in imported_anywhere(file)} & CONCRETE
        assert len(named) < 2, f"{file.relative_to(ROOT)} imports {sorted(named)}: ask kbslurm.wiring for it"


def test_the_migrations_folder_does_not_shadow_alembic() -> None:
    assert (ROOT / "alembic" / "env.py").is_file()
    assert not list((ROOT / "alembic").rglob("__init__.py"))
    code = "import alembic.command; print(alembic.__file__)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not Path(found.stdout.strip()).is_relative_to(ROOT / "alembic")


def test_nothing_is_called_after_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "tools"}
    for top in ("kbslurm", "bot", "eval", "tests"):
        for file in (ROOT / top).rglob("*.py"):
            assert file.stem not in empty and file.parent.name not in empty, f"{file.relative_to(ROOT)} says nothing"


class TestTheHarnessAlone:
    """The folder eval/ is the program: it has to run on a node that has Python and nothing else."""

    def test_it_runs_without_site_packages(self) -> None:
        argv = [sys.executable, "-I", "-S", str(ROOT / "eval"), "--help"]
        said = subprocess.run(argv, capture_output=True, text=True, cwd="/", env={}, timeout=60, check=False)
        assert said.returncode == 0, said.stderr
        assert "manifest" in said.stdout.lower()
        assert said.stderr == ""

    def test_it_imports_the_standard_library_itself_and_what_a_problem_may_bring(self) -> None:
        allowed = set(sys.stdlib_module_names) | {"kbslurm_eval", "numpy", "torch"}
        for file in sorted((ROOT / "eval").rglob("*.py")):
            others = {name.split(".")[0] for name in imported_anywhere(file)} - allowed
            assert not others, f"{file.relative_to(ROOT)} imports {sorted(others)}"

    def test_none_of_its_files_needs_what_a_problem_may_bring(self) -> None:
        """torch and numpy are the problem's: a harness that needs them could not judge a problem without."""
        for file in sorted((ROOT / "eval").rglob("*.py")):
            assert not {"torch", "numpy"} & {name.split(".")[0] for name in imported_at_top(file)}, file

    @pytest.mark.parametrize("started", ["cage.launcher", "runner.serve"])
    def test_what_starts_with_every_launch_imports_little(self, started: str) -> None:
        """A run has up to a dozen launches, each of a launcher and a runner, and these take longest to import."""
        code = f"import sys; sys.path.insert(0, 'eval'); import kbslurm_eval.{started}; print(*sys.modules)"
        said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        nothing = [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"]
        itself = subprocess.run(nothing, capture_output=True, text=True, check=True)
        imported = set(said.stdout.split()) - set(itself.stdout.split())  # a virtual environment imports some by itself
        assert not {"asyncio", "pathlib", "platform", "socket", "subprocess", "tempfile", "urllib.parse"} & imported

    def test_it_never_unpickles(self) -> None:
        for file in sorted((ROOT / "eval").rglob("*.py")):
            assert not {"pickle", "marshal", "shelve", "dill"} & set(imported_anywhere(file)), file


@pytest.mark.parametrize("top", ["kbslurm", "bot", "eval"])
def test_every_module_says_what_it_is(top: str) -> None:
    for file in sorted((ROOT / top).rglob("*.py")):
        tree = ast.parse(file.read_text())
        assert not tree.body or ast.get_docstring(tree), f"{file.relative_to(ROOT)} has no docstring"


def test_importing_the_command_line_is_light() -> None:
    """`kbslurm --help` on a login node must not wait for what only a daemon needs."""
    code = "import json, sys, kbslurm.cli; print(json.dumps(sorted(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    heavy = {"torch", "kbslurm_bot", "pyslurm", "modal", "discord"} & set(json.loads(said.stdout))
    assert not heavy


def test_only_the_agents_tools_need_what_an_extra_brings() -> None:
    """Every other module is imported where neither the protocol's package nor a notebook's is installed."""
    listed = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in sorted((ROOT / "kbslurm").rglob("*.py"))
        if file.stem not in ("__init__", "__main__") and "parts" not in file.parts and file.name != "agent_tools.py"
        and "modal" not in file.parts and "pyslurm" not in file.name
    ]  # fmt: skip
    code = f"""
import importlib, sys
sys.modules.update(dict.fromkeys(("mcp", "IPython", "ipykernel", "nbformat")))
for name in {listed!r}:
    importlib.import_module(name)
try:
    importlib.import_module("kbslurm.cli.competitor.agent_tools")
except ImportError:
    print("and those do")
"""
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert said.stdout == "and those do\n" and len(listed) > 300


def test_the_service_starts_without_what_only_a_sign_in_provider_needs() -> None:
    code = "import json, sys, kbslurm.api.server; print(json.dumps(sorted(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"joserfc", "cryptography"} & set(json.loads(said.stdout))


@pytest.mark.parametrize("words", [(), ("board",), ("cancel",), ("user", "token", "list")], ids=" ".join)
def test_a_command_line_imports_no_command_but_its_own(words: tuple[str, ...]) -> None:
    code = f"""
import json, sys
from kbslurm.cli import main
from kbslurm.cli.commands import COMMANDS, Group
def modules(listed):
    for one in listed.values():
        if isinstance(one, Group):
            yield from modules(one.commands)
        else:
            yield "kbslurm.cli." + one.function.partition(":")[0]
sys.argv = ["kbslurm", *{words!r}, "--help"]
code = main()
print(json.dumps(sorted(set(modules(COMMANDS)) & set(sys.modules))))
sys.exit(code)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    asked = {("cancel",): ["kbslurm.cli.competitor.cancel"], ("user", "token", "list"): ["kbslurm.cli.host.user_token"]}
    assert json.loads(said.stdout.splitlines()[-1]) == asked.get(words, [])


def imported_at_top(file: Path) -> list[str]:
    return [name for node in ast.parse(file.read_text()).body for name in names_of(node)]


def imported_anywhere(file: Path) -> list[str]:
    return [name for node in ast.walk(ast.parse(file.read_text())) for name in names_of(node)]


def names_of(node: ast.AST) -> list[str]:
    """What an import statement imports, absolute names only."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0, names=names):
            return [module, *(f"{module}.{alias.name}" for alias in names)]
        case _:
            return []
