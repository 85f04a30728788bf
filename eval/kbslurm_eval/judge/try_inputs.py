"""Whether a problem's inputs can be made and sent, tried once when it is added: in a runner's cage, with its limits.

The problem's code is as foreign there as a submission. What comes back is one line of text: `checked`, `unchecked: …`
where this machine lacks what the problem needs, or `faulty: …`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kbslurm_eval.cage.runners import CantStart, Runners
from kbslurm_eval.judge.heartbeat import Heartbeat
from kbslurm_eval.judge.launch import Allowance, Launch
from kbslurm_eval.judge.reference import Case, Prepared, unseen_modules
from kbslurm_eval.judge.replies import Rejected, as_one_line, clean
from kbslurm_eval.shared import layouts, recorded, values
from kbslurm_eval.shared.runner_link import Status
from kbslurm_eval.shared.wire import Manifest

LIMIT_S = 60.0
SAID_CAP = 1_000
NO_MEMORY = "unchecked: generate_input needs more memory than it may use here"
ENTRY = "kbslurm_inputs.py"
PROBE = "from kbslurm_eval.judge.try_inputs import made_inside as custom_kernel\n"
_DEVICE = re.compile(r"cuda|\bhip\b|\bnccl\b|\bgpu\b|nvidia|rocm|process group|accelerator", re.IGNORECASE)


def of_manifest(manifest: Manifest, runners: Runners) -> str:
    """What trying the smallest test case came to."""
    if manifest.build.adapter:
        return "unchecked: generate_input is C++, which is compiled where it is judged"
    told = replace(
        manifest,
        lang="py",
        entry=ENTRY,
        source=PROBE,
        runner_files=list(manifest.files),
        config={**manifest.config, "call": "custom_kernel", "wrapper": None},
    )
    case = min(manifest.tests, key=_size)
    asked = {
        "reference": manifest.reference.removesuffix(".py"),
        "params": case,
        "unseen": sorted(unseen_modules(manifest)),
        "torch": "import torch" in "".join(manifest.files.values()),
        "recorded": {name: text for name, text in manifest.files.items() if name.endswith(recorded.SUFFIX)},
    }
    text = "x" * SAID_CAP
    call = Prepared(
        case=Case(index=0, params=case),
        packed=values.pack(asked),
        layout=layouts.Layout.of(text),
        expected=None,
        exact=True,
    )
    limit_s = min(LIMIT_S, max(1.0, manifest.limits.test_s))
    launch = None
    try:
        launch = Launch(runners, Allowance(left_s=limit_s, whole_s=limit_s), Heartbeat(None))
        reply = launch.load(told)
        if reply.status == Status.OK:
            reply = launch.call(call)
        if reply.status == Status.MEMORY:
            return NO_MEMORY
        if reply.status != Status.OK:
            return f"faulty: {as_one_line(clean(reply.text, SAID_CAP))}"
        return as_one_line(clean(str(call.layout.read(reply.out)), SAID_CAP))
    except Rejected as fault:
        if launch is None or fault.verdict in ("timeout", "memory"):
            return f"unchecked: {fault.said.replace('the submission', 'generate_input')}"
        return f"faulty: generate_input: {fault.said}"
    except (CantStart, layouts.Misfit) as trouble:
        return f"unchecked: {trouble}"
    finally:
        if launch is not None:
            launch.close()


def _size(case: Mapping[str, Any]) -> float:
    size = 1.0
    for name, value in case.items():
        if isinstance(value, int) and not isinstance(value, bool) and name != "seed":
            size *= max(1, abs(value))
    return size


# ------------------------------------------------------------------------------------------------- inside the runner


def made_inside(asked: dict[str, Any]) -> str:
    """Make the inputs of one case and pack them, in the runner."""
    try:
        module = importlib.import_module(asked["reference"])
        function = next(found for name in ("generate_input",) if callable(found := getattr(module, name, None)))
        value = function(**_params(function, asked["params"], asked["recorded"]))
    except ImportError as error:
        name = (error.name or str(error)).partition(".")[0]
        return f"unchecked: {name} isn't installed here"
    except MemoryError:
        return NO_MEMORY
    except StopIteration:
        return "faulty: generate_input is missing"
    except BaseException as error:  # noqa: BLE001 - it is the author's code
        said = f"{type(error).__name__}: {error}"[: SAID_CAP // 2]
        if isinstance(error, NotImplementedError) or (asked["torch"] and _DEVICE.search(said)):
            return f"unchecked: it needs a device that isn't here ({said})"
        return f"faulty: generate_input failed for the case {_spec(asked['params'])}: {said}"
    try:
        values.pack(value, unseen=asked["unseen"])
    except values.Unsendable as error:
        return f"faulty: an input can't be sent to submissions: {error}"
    return "checked"


def _params(function: Any, case: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    params = dict(case)
    try:
        takes = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return params
    torch = sys.modules.get("torch")
    device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    given = {"device": device, "rank": int(os.environ.get("RANK", "0")), "recorded": recorded.reader(files, device)}
    for name, value in given.items():
        if name in takes:
            params.setdefault(name, value)
    return params


def _spec(case: Mapping[str, Any]) -> str:
    return "; ".join(f"{k}: {v}" for k, v in case.items())[:200]
