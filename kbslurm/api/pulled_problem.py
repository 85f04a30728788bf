"""A board's problem as it is handed out: the one place that decides what of it leaves."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbslurm import wiring
from kbslurm.config import shared_folders
from kbslurm.config.sections.ray import image_of
from kbslurm.domain.problem import as_json
from kbslurm.domain.source import for_board
from kbslurm.errors import KbslurmError
from kbslurm.images.recipes import recipes_in
from kbslurm.problems.handout import handout, has_hidden
from kbslurm_eval.shared.program import harness_digest

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Board

NO_PACKAGES = ("bootstrap", "base")  # a recipe's arguments that aren't versions of packages


def pulled_told(store: PostgresStore, config: Config, board: Board) -> dict[str, Any]:
    """What anybody may have who sees the board: no secret seed, no hidden case; the reference only if the board
    publishes it."""
    kept = handout(board.problem, reference=board.publishes_reference)
    content = as_json(kept)
    content["templates"] = {name: for_board(text, board.name) for name, text in kept.templates.items()}
    times = store.calibrations.of_board(board) if board.publishes_reference else {}
    return {
        "leaderboard": board.name,
        "problem": board.problem_name,
        "version": board.problem_version_id,
        "digest": kept.digest,
        "description": board.description,
        "gpu_types": list(board.gpus),
        "publishes_reference": board.publishes_reference,
        "hidden": {gpu: has_hidden(board.problem, gpu) for gpu in board.gpus},
        "content": content,
        "harness": _harness(),
        "images": {gpu: _images(config, gpu) for gpu in board.gpus},
        "baseline_s": {gpu: list(one.b_ref_s) for gpu, one in times.items() if one.b_ref_s is not None},
    }


@cache
def _harness() -> str:
    return harness_digest(shared_folders.eval_dir())


def _images(config: Config, gpu: str) -> list[dict[str, Any]]:
    """What the places say about the image of this GPU type; its path on the server stays here."""
    found: list[dict[str, Any]] = []
    try:
        for site in wiring.sites(config):
            kind = next((one for name, one in site.gpus.items() if name.lower() == gpu.lower()), None)
            if kind is not None and kind.image:
                packages = _packages(Path(kind.image).stem)
                found.append(_image(site.name, Path(kind.image_file).name, kind.image_digest or None, packages))
    except KbslurmError:  # a site's file that can't be read: its operator is told elsewhere
        return found
    for place, cluster in config.ray.items():
        name = next((one for one in cluster.gpus if one.lower() == gpu.lower()), None)
        if name is not None and (image := image_of(cluster, name)) is not None:
            packages = _packages(Path(image.path).stem.partition("-")[0])  # behind it stands which version it is
            found.append(_image(place, Path(image.path).name, image.digest or None, packages))
    if any(name.lower() == gpu.lower() for name in config.modal.gpus):
        found.append(_image("modal", config.modal.image, None, list(config.modal.packages)))
    return found


def _image(place: str, image: str, digest: str | None, packages: list[str]) -> dict[str, Any]:
    return {"place": place, "image": image, "digest": digest, "packages": packages}


@cache
def _packages(name: str) -> list[str]:
    """The packages and versions that the recipe of an image's name pins."""
    try:
        recipes = recipes_in(shared_folders.path("containers"))
    except KbslurmError:
        return []
    recipe = next((one for one in recipes if one.name == name), None)
    pinned = {} if recipe is None else recipe.arguments
    return [f"{key}=={value}" for key, value in pinned.items() if key not in NO_PACKAGES and value[:1].isdecimal()]
