"""What is deployed on Modal: one self-contained folder for `modal deploy`; and checks of the deployment.

kbslurm_app.py   containers/modal_app.py: an image and one function per GPU type, as told.json says
told.json        the app's name, the image, the functions and what each is allowed, the harness's digest
inside.py        the body of every function
eval/            the harness
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbslurm.backends.modal.backend import function_name
from kbslurm.backends.modal.connection import CallFailed, Connection, check_client
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.errors import BackendTrouble, Invalid, Misconfigured

APP_FILE, TOLD_FILE = "kbslurm_app.py", "told.json"
HARNESS_TAG = "kbslurm-harness"
DIGITS = 16  # of the digest, in the app's tag
EXACT = {"H100": "H100!", "A100": "A100-40GB"}
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")
DEPLOY = "Run kbslurm modal deploy."


def exact(gpu: str) -> str:
    """Modal's name for just this GPU type: under the plain ones it may hand out a better one for the same price."""
    return EXACT.get(gpu.upper(), gpu)


def told(
    *,
    app: str,
    image: str,
    python: str,
    packages: Sequence[str],
    functions: Mapping[str, Mapping[str, Any]],
    digest: str,
) -> dict[str, Any]:
    """The app file's input. `functions`: by GPU type, its `gpu`, `timeout_s`, `cpu`, `memory_mib` and `slots`."""
    return {
        "app": app,
        "image": image,
        "python": python,
        "packages": list(packages),
        "functions": {function_name(gpu): dict(one) for gpu, one in functions.items()},
        "harness_digest": digest,
        "tags": {HARNESS_TAG: digest[:DIGITS]},
    }


def render(folder: Path, facts: Mapping[str, Any], *, eval_dir: Path, app_file: Path) -> Path:
    """Write the folder atomically and return the app file in it. A folder that isn't an app's is never replaced."""
    if folder.exists() and not (folder / TOLD_FILE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise Invalid(f"{folder} exists and isn't an app folder", hint="Choose a folder that doesn't exist yet.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.with_name(f".{folder.name}-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        shutil.copytree(eval_dir, fresh / "eval", ignore=IGNORED)
        shutil.copy(Path(__file__).with_name("inside.py"), fresh / "inside.py")
        shutil.copy(app_file, fresh / APP_FILE)
        (fresh / TOLD_FILE).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder / APP_FILE


def deploy(file: Path, *, token: tuple[str, str], api_url: str, environment: str) -> None:
    """Run `modal deploy` on this file with our token, showing its output on standard error."""
    check_client()
    argv = [sys.executable, "-m", "modal", "deploy", *(("--env", environment) if environment else ()), str(file)]
    told_env = {"MODAL_TOKEN_ID": token[0], "MODAL_TOKEN_SECRET": token[1], "MODAL_SERVER_URL": api_url}
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MODAL_", "DATABASE_", "DISCORD_"))
    }
    done = subprocess.run(
        argv, env={**kept, **told_env}, cwd=file.parent, stdin=subprocess.DEVNULL, stdout=2, check=False
    )
    if done.returncode:
        raise BackendTrouble(
            "modal",
            f"modal deploy failed with exit code {done.returncode}",
            hint="See its output above, and run kbslurm modal check.",
        )


def findings(connection: Connection, facts: Mapping[str, Any]) -> list[Finding]:
    """Check token, app, harness and functions, in this order; checks that depend on a failed one are left out."""
    app = facts["app"]
    try:
        connection.hello()
    except CallFailed as trouble:
        if trouble.status in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            remedy = "Create one at modal.com, Settings, API Tokens; then set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET."
            return [failed("token", f"Modal rejects it: {trouble.said}", remedy)]
        return [
            failed("reach", f"Modal can't be reached: {trouble.said}", "Check network, proxy and status.modal.com.")
        ]
    found = [passed("token", "Modal accepts it")]
    try:
        tags = connection.app_tags(app)
        if tags is None:
            return [*found, failed("app", f"there is no deployed app {app}", DEPLOY)]
        found.append(passed("app", f"{app} is deployed"))
        found.append(_harness(tags.get(HARNESS_TAG, ""), facts["harness_digest"][:DIGITS]))
        return found + [_function(connection, app, name, want) for name, want in sorted(facts["functions"].items())]
    except CallFailed as trouble:
        return [*found, failed("app", f"it can't be checked: {trouble.said}", "Check whether the token can see it.")]


def _harness(deployed: str, ours: str) -> Finding:
    if deployed == ours:
        return passed("harness", f"the app has ours, {ours}")
    which = f"a different one, {deployed}" if deployed else "an unknown one"
    return failed("harness", f"the app has {which}, but ours is {ours}: it would refuse runs", DEPLOY)


def _function(connection: Connection, app: str, name: str, want: Mapping[str, Any]) -> Finding:
    try:
        there = connection.function(app, name)
    except CallFailed as trouble:
        if trouble.status == "NOT_FOUND":
            return failed("function", f"there is no {name}", DEPLOY, where=name)
        return caution("function", f"{name} can't be checked: {trouble.said}", "Try again.", where=name)
    if there.shut_off is False:
        text = f"{name} has a network, rights at Modal, or containers that serve several runs"
        return failed("function", text, DEPLOY, where=name)
    if there.timeout_s and there.timeout_s != want["timeout_s"]:
        text = f"{name} is limited to {there.timeout_s:g} s, but {want['timeout_s']:g} s are configured"
        return caution("function", text, DEPLOY, where=name)
    return passed("function", f"{name} is deployed", where=name)


def check_token(token_id: str | None, token_secret: str | None) -> tuple[str, str]:
    """Check both halves of the token."""
    if not token_id or not token_secret:
        missing = "MODAL_TOKEN_ID" if not token_id else "MODAL_TOKEN_SECRET"
        raise Misconfigured(
            f"[modal] is configured, but {missing} isn't set",
            fix=f"Set {missing}, or {missing}_FILE; modal.com, Settings, API Tokens.",
        )
    return token_id, token_secret
