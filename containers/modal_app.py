"""The app that `modal deploy` deploys: an image, and one function per GPU type. `kbslurm modal deploy` puts this file
into a folder with told.json, inside.py and eval/ beside it, and deploys it from there; by hand it is the same:

    kbslurm modal deploy --to FOLDER && modal deploy FOLDER/kbslurm_app.py

Imported twice: where it is deployed from, and in the container, where the same files lie beside it again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import modal

HERE = Path(__file__).resolve().parent
TOLD = json.loads((HERE / "told.json").read_text(encoding="utf-8"))
ROOT = "/root"  # where Modal puts this file

app = modal.App(TOLD["app"], tags=TOLD["tags"])

image = (
    modal.Image.from_registry(TOLD["image"], add_python=TOLD["python"])
    if TOLD["image"]
    else modal.Image.debian_slim(python_version=TOLD["python"])
)
if TOLD["packages"]:
    image = image.pip_install(*TOLD["packages"])
for name in ("told.json", "inside.py"):
    image = image.add_local_file(HERE / name, f"{ROOT}/{name}")
image = image.add_local_dir(HERE / "eval", f"{ROOT}/eval", ignore=["**/__pycache__", "**/*.pyc"])


def judge(payload: bytes) -> bytes:
    """The body of every function: bytes of JSON in, bytes of JSON out."""
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    import inside  # type: ignore[import-not-found,unused-ignore]

    return bytes(inside.judge(payload))


for name, want in TOLD["functions"].items():
    app.function(
        name=name,
        image=image,
        gpu=want["gpu"] or None,
        timeout=int(want["timeout_s"]),
        cpu=want["cpu"],
        memory=(want["memory_mib"], want["memory_mib"]),
        max_containers=want["slots"],
        retries=0,
        # A submission's container: nothing to reach, no rights at Modal, nothing left for the next one.
        block_network=True,
        restrict_modal_access=True,
        single_use_containers=True,
    )(judge)
