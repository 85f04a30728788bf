# ruff: noqa
# mypy: ignore-errors
# does: future annotations and a class
from __future__ import annotations
import dataclasses


@dataclasses.dataclass
class Plan:
    data: list[float]

    def run(self) -> list[float]:
        return sorted(self.data)


def custom_kernel(data: list[float]) -> list[float]:
    return Plan(data).run()
