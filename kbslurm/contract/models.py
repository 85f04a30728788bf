"""Every model of the contract by its name."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module

from pydantic import BaseModel

from kbslurm import contract

SUBJECTS = tuple(
    import_module(f"{contract.__name__}.{found.name}")
    for found in pkgutil.iter_modules(contract.__path__)
    if found.name != "models"
)
MODELS: Mapping[str, type[BaseModel]] = {
    name: model
    for subject in SUBJECTS
    for name, model in vars(subject).items()
    if isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == subject.__name__
}
