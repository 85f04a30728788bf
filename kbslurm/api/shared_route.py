"""A route whose signature is read once per process, however many apps have it, and whose answers are described only for
the OpenAPI document.

The framework makes a validator for every parameter and every documented answer: hundreds, for this service. What a
signature says depends on the code of its function alone, and that is the same in each app.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi.routing import APIRoute, request_response

Responses = dict[int | str, dict[str, Any]]
_OF_ONE_APP = frozenset({"endpoint", "app", "dependant"})


@dataclass(kw_only=True)
class _Read:
    """What was found out about a route. `told`: all that it depends on, besides the key under which it is kept."""

    told: tuple[Any, ...]
    state: Mapping[str, Any]
    dependant: Any
    fields: dict[int | str, Any] = field(default_factory=dict)


_read: dict[tuple[Any, ...], _Read] = {}


class SharedRoute(APIRoute):
    """As the framework's. Routes that differ only in what their functions close over share what is known of them."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Collection[str] | None = None,
        responses: Responses | None = None,
        **told: Any,
    ) -> None:
        code = getattr(endpoint, "__code__", endpoint)
        key = (type(self), path, frozenset(methods or ()), code)
        depends_on = (told, getattr(endpoint, "__defaults__", None), getattr(endpoint, "__kwdefaults__", None))
        read = _read.get(key)
        if read is not None and read.told == depends_on:
            self.__dict__.update(read.state)
            self.endpoint = endpoint
            self.dependant = replace(read.dependant, call=endpoint)
            self.app = request_response(self.get_route_handler())
        else:
            super().__init__(path, endpoint, methods=None if methods is None else list(methods), **told)
            state = {name: value for name, value in self.__dict__.items() if name not in _OF_ONE_APP}
            read = _read[key] = _Read(told=depends_on, state=state, dependant=replace(self.dependant, call=_nothing))
        self.responses, self._read = responses or {}, read

    @property
    def response_fields(self) -> dict[int | str, Any]:
        """What the documented answers look like: made when the document is written."""
        if not self._read.fields and self.responses:
            described = APIRoute(
                self.path, _nothing, methods=list(self.methods or ()), name=self.name, responses=self.responses
            )
            self._read.fields = described.response_fields
        return self._read.fields

    @response_fields.setter
    def response_fields(self, fields: dict[int | str, Any]) -> None:
        """The framework would keep them here."""


def _nothing() -> None:
    """Stands for a route's function where only its description counts."""
