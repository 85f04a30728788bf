"""The process in which spython runs: one order as JSON on standard input, one answer as JSON on standard output.

spython exits its process on errors, has no timeouts, prints freely and always calls its program `singularity`. Here
that does no harm: the parent has a timeout and reads one line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def main() -> int:
    """Execute one order. Exit status 0 with an answer on standard output, whatever the program did."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    order = json.load(sys.stdin)
    shim = Path(order["scratch"]) / "bin"
    shim.mkdir()
    (shim / "singularity").symlink_to(order["program"])
    os.environ["PATH"] = f"{shim}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    told = _carried_out(order)
    json.dump(told, answer)
    answer.close()
    return 0


def _carried_out(order: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return _ACTIONS[order["action"]](order)
    except SystemExit as end:
        return {"status": end.code if isinstance(end.code, int) and end.code else 1, "said": "spython gave up"}


def _build(order: Mapping[str, Any]) -> dict[str, Any]:
    client, heard = _client()
    client.build(
        recipe=order["source"],
        image=order["image"],
        sandbox=order["sandbox"],
        options=list(order["options"]),
        sudo=False,
        force=True,
        quiet=True,
    )
    return _ended(heard, order["image"])


def _pull(order: Mapping[str, Any]) -> dict[str, Any]:
    client, heard = _client(*order["options"])
    client.pull(image=order["source"], name=order["image"], force=True, quiet=True, capture=True)
    return _ended(heard, order["image"])


def _inspect(order: Mapping[str, Any]) -> dict[str, Any]:
    client, _ = _client()
    found = client.inspect(image=order["image"], quiet=True)
    if isinstance(found, dict) and "attributes" in found:
        return {"status": 0, "said": "", "attributes": found["attributes"]}
    said = found.get("message") if isinstance(found, dict) else None
    return {"status": 1, "said": _text(said)}


def _client(*options: str) -> tuple[Any, dict[str, Any]]:
    """spython's client, and its program's last output, which build and pull don't return.

    `options` are appended to the command's name, since pull has no parameter for them.
    """
    from spython.main import get_client

    client = get_client(quiet=True)
    run, init, heard = client._run_command, client._init_command, {"return_code": 1, "message": []}

    def run_and_hear(*arguments: Any, **named: Any) -> Any:
        heard.update(run(*arguments, **(named | {"return_result": True, "quiet": True})))
        return heard

    def init_with_options(*arguments: Any) -> list[str]:
        return [*init(*arguments), *options]

    client._run_command, client._init_command = run_and_hear, init_with_options
    return client, heard


def _ended(heard: Mapping[str, Any], image: str) -> dict[str, Any]:
    return {"status": heard["return_code"] or int(not Path(image).exists()), "said": _text(heard["message"])}


def _text(lines: object) -> str:
    return "\n".join(map(str, lines)) if isinstance(lines, list) else str(lines or "")


_ACTIONS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "build": _build,
    "pull": _pull,
    "inspect": _inspect,
}


if __name__ == "__main__":
    raise SystemExit(main())
