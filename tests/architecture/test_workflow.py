"""The workflow that hosts copy into a repository of theirs: what it may use, and who gets its secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / ".github" / "workflows" / "kbslurm-run.yml"
RUNNERS_FOLDER = ROOT / "kbslurm" / "backends" / "github"


@pytest.fixture(scope="module")
def workflow() -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(FILE.read_text())
    return found


@pytest.fixture(scope="module")
def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workflow["jobs"]["run"]["steps"]
    return found


def test_it_is_only_started_by_us_and_named_by_the_attempt(workflow: dict[Any, Any]) -> None:
    assert list(workflow[True]) == ["workflow_dispatch"], "YAML's `on` is the boolean"
    assert workflow["run-name"] == "kbslurm ${{ inputs.name }}"
    assert workflow["concurrency"] == {"group": "kbslurm-${{ inputs.name }}", "cancel-in-progress": False}
    assert workflow["permissions"] == {"contents": "write"}


def test_every_action_is_pinned_to_a_commit() -> None:
    used = re.findall(r"uses: *(\S+)(.*)", FILE.read_text())
    assert used
    for action, comment in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{action}: say which version that is"


def test_no_script_holds_what_somebody_else_wrote(steps: list[dict[str, Any]]) -> None:
    for step in steps:
        assert "${{" not in step.get("run", ""), f"{step['name']}: hand it over in env"


def test_the_secret_is_in_no_step_that_runs_a_submission(steps: list[dict[str, Any]]) -> None:
    holders = [step["name"] for step in steps if "secrets." in str(step)]
    assert holders == ["Open the order", "Seal what came of it"]
    (judging,) = [step for step in steps if "carry.py run" in step.get("run", "")]
    assert judging["env"] == {"NAME": "${{ inputs.name }}", "PYTHON": "${{ steps.python.outputs.path }}"}
    assert [step["name"] for step in steps if "github.token" in str(step)] == [
        "Claim this attempt",
        "Open the order",
        "Hand it over on an Enterprise Server",
    ]


def test_the_claim_comes_before_all_that_a_second_job_must_not_do(steps: list[dict[str, Any]]) -> None:
    assert [step.get("id") for step in steps[:3]] == [None, "python", "claim"]
    for step in steps[3:]:
        condition = step["if"]
        assert condition == "always()" or "steps.claim.outputs.mine" in condition or "steps.open.outcome" in condition


def test_what_a_runner_installs_is_what_the_lock_has() -> None:
    def blocks(text: str) -> dict[str, set[str]]:
        found = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)
        return {one.split(" ")[0]: set(re.findall(r"sha256:[0-9a-f]{64}", one)) for one in found if "==" in one}

    wanted, locked = (
        blocks((RUNNERS_FOLDER / "requirements.txt").read_text()),
        blocks((ROOT / "requirements.lock").read_text()),
    )
    assert {name.partition("==")[0] for name in wanted} == {"cffi", "cryptography", "pycparser"}
    for name, hashes in wanted.items():
        assert hashes == locked[name], f"{name}: copy it anew from requirements.lock"
