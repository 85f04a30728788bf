"""`kbslurm github check`: would a run work? Calls the API, starts nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kbslurm.backends.github import repository_files
from kbslurm.backends.github.api import Api
from kbslurm.backends.github.backend import WORKFLOW, GithubBackend
from kbslurm.backends.github.runner_program import is_enterprise
from kbslurm.domain.finding import Finding, caution, failed, passed, unseen
from kbslurm.errors import BackendTrouble

SECRET = "KBSLURM_RUN_KEY"
HOSTED = ("ubuntu-", "windows-", "macos-")
LEAST_RUNNER = (2, 327, 1)  # the first that has Node 24, which the workflow's actions run on
LOG_CAP = 4 << 20
_VERSION = re.compile(rb"Current runner version: '(\d+)\.(\d+)\.(\d+)'")
INSTALL = "Run: kbslurm github install DIR in a working copy of it, then commit and push."


def findings(backend: GithubBackend, eval_dir: Path) -> Iterator[Finding]:
    """The findings, in the order in which to fix them."""
    api = backend.api
    try:
        answer = api.get("")
    except BackendTrouble as error:
        yield failed("API", error.message, error.hint or f"Check that {api.url} can be reached from here.")
        return
    if answer.status != 200:
        yield failed(
            "repository",
            f"{api.repository} can't be seen with this token ({answer.status})",
            "Set [github] repository, and give the token access to it: Actions and Contents, read and write.",
        )
        return
    if not isinstance(answer.data, Mapping):
        yield failed("API", f"{api.url} answers, but not like GitHub", "Check [github] api_url and GITHUB_API_URL.")
        return
    yield passed("API", f"{api.url} answers, {_many(api)}")
    yield _privacy(api.repository, private=answer.data.get("private") is True)
    for look in (_server, _files, _workflow, _secret, _labels, _runner_version):
        try:
            yield from look(backend, eval_dir)
        except BackendTrouble as error:
            yield failed(look.__name__.strip("_"), error.message, error.hint or "Try again.")
            return


def _many(api: Api) -> str:
    left = min(token.left for token in api.tokens)
    said = f"{len(api.tokens)} token{'s' if len(api.tokens) > 1 else ''}"
    return said if left >= 1 << 30 else f"{said}, {left} calls left this hour"


def _privacy(repository: str, *, private: bool) -> Finding:
    if private:
        return passed("repository", f"{repository} is private")
    return caution(
        "repository",
        f"{repository} is public: its runs get no hidden cases, and nothing from there ranks",
        "Make it private, or use another repository.",
    )


def _server(backend: GithubBackend, _: Path) -> Iterator[Finding]:
    if is_enterprise(backend.api.url):
        yield caution(
            "server",
            "a GitHub Enterprise Server: it takes no artifacts, so results come as git objects; and it must know the"
            " workflow's actions",
            "Let its administrators connect it to github.com (GitHub Connect), or sync actions/checkout and"
            " actions/upload-artifact to it at the commits that kbslurm-run.yml names.",
        )


def _runner_version(backend: GithubBackend, _: Path) -> Iterator[Finding]:
    """The API tells no runner's version; each job's log begins with it."""
    if all(any(label.startswith(HOSTED) for label in labels) for labels in backend.gpus.values()):
        return
    least = ".".join(map(str, LEAST_RUNNER))
    found = _VERSION.search(_newest_log(backend.api))
    if found is None:
        yield unseen(
            "runner version",
            "is in the log of a run, and there is none yet",
            f"Use {least} or newer (./run.sh --version).",
        )
        return
    version = tuple(map(int, found.groups()))
    told = ".".join(map(str, version))
    if version >= LEAST_RUNNER:
        yield passed("runner version", f"{told} ran the newest run")
    else:
        text = f"{told} ran the newest run; the workflow's actions need {least} or newer"
        yield caution("runner version", text, "Update that runner, or let it update itself.")


def _newest_log(api: Api) -> bytes:
    """The log of the newest run's first job; empty if there is none."""
    path, key = f"/actions/workflows/{WORKFLOW}/runs", "workflow_runs"
    for after in ("/actions/runs/{}/jobs", ""):
        answer = api.get(path, per_page=1)
        listed = answer.data.get(key) if answer.status == 200 and isinstance(answer.data, Mapping) else None
        if not listed or not isinstance(listed, list):
            return b""
        path, key, number = after.format(listed[0].get("id")), "jobs", listed[0].get("id")
    return api.bytes_of(f"/actions/jobs/{number}/logs", LOG_CAP) or b""


def _files(backend: GithubBackend, eval_dir: Path) -> Iterator[Finding]:
    answer = backend.api.get(f"/git/trees/{backend.branch}", recursive="1")
    if answer.status != 200:
        yield failed("branch", f"there is no branch {backend.branch} that the token can read", "Set [github] branch.")
        return
    different = repository_files.differences(repository_files.listed(answer.data), eval_dir)
    if not different:
        yield passed("harness", f"workflow and harness on {backend.branch} are this version's")
    elif answer.data.get("truncated"):
        yield caution("harness", "the repository has more files than the API lists", "Use a repository just for runs.")
    elif len(different) == len(repository_files.files(eval_dir)):
        yield failed("harness", f"{backend.branch} has neither workflow nor harness", INSTALL)
    else:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        text = f"different from this version's on {backend.branch}: {', '.join(different[:3])}{more}"
        yield failed("harness", text, INSTALL)


def _workflow(backend: GithubBackend, _: Path) -> Iterator[Finding]:
    answer = backend.api.get(f"/actions/workflows/{WORKFLOW}")
    state = answer.data.get("state") if answer.status == 200 else None
    if state == "active":
        yield passed("workflow", f"{WORKFLOW} is active")
    elif answer.status == 200:
        yield failed("workflow", f"{WORKFLOW} is {state}", "Enable it on the repository's Actions page.")
    else:
        yield failed(
            "workflow",
            f"GitHub doesn't know {WORKFLOW} (status {answer.status})",
            "It must be on the default branch, Actions must be enabled, and the token needs Actions: read and write.",
        )


def _secret(backend: GithubBackend, _: Path) -> Iterator[Finding]:
    answer = backend.api.get("/actions/secrets", per_page=100)
    how = f"Settings → Secrets and variables → Actions → New repository secret: {SECRET}, with the same value as here."
    if answer.status != 200:
        yield caution(
            "secret",
            f"whether {SECRET} is set can't be seen with this token",
            f"Give the token Secrets: read, or check it yourself. {how}",
        )
        return
    names = {str(one.get("name")) for one in answer.data.get("secrets", ())}
    if SECRET in names:
        yield passed("secret", f"{SECRET} is set; only a run can show whether it is the same key as here")
    else:
        yield failed("secret", f"the repository has no Actions secret {SECRET}", how)


def _labels(backend: GithubBackend, _: Path) -> Iterator[Finding]:
    answer = backend.api.get("/actions/runners", per_page=100)
    runners = answer.data.get("runners", ()) if answer.status == 200 else None
    for gpu, labels in backend.gpus.items():
        said = ", ".join(labels)
        if any(label.startswith(HOSTED) for label in labels):
            text = f"{said}: a machine provided by GitHub; its CPU model varies, so times differ from run to run"
            yield caution(
                "runners", text, "Only rank what may vary that much from there; see docs/overflow.md.", where=gpu
            )
        elif runners is None:
            text = f"whether a runner has {said} can't be seen with this token"
            yield caution("runners", text, "Give the token Administration: read, or check it yourself.", where=gpu)
        else:
            fit = [one for one in runners if set(labels) <= {str(label.get("name")) for label in one.get("labels", ())}]
            online = sum(1 for one in fit if one.get("status") == "online")
            if online:
                yield passed("runners", f"{online} online with {said}", where=gpu)
            else:
                text = f"none of the repository's own runners is online with {said}"
                yield caution("runners", text, "Start one, or check whether the organisation has one.", where=gpu)
