"""What may be called, from the app's own table of routes: a new route is fuzzed without being named here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.routing import Route


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One value in a path, query or header, and the JSON schema of what is expected there."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One method of one route."""

    method: str
    path: str
    in_path: Sequence[Parameter] = ()
    in_query: Sequence[Parameter] = ()
    in_headers: Sequence[Parameter] = ()
    body: Mapping[str, Any] | None = None
    takes_upload: bool = False
    takes_form: bool = False
    form_fields: Sequence[str] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def of_app(app: FastAPI) -> list[Call]:
    """Every call of this app, in the order of its routes."""
    fields, found = _form_fields(), []
    for route in _routes(app.routes):
        for method in sorted(route.methods or ()):
            if isinstance(route, APIRoute):
                found.append(_call(route, method, fields))
            else:
                found.append(Call(method=method, path=route.path))
    return found


def _routes(routes: Iterable[Any]) -> Iterator[APIRoute | Route]:
    for route in routes:
        if isinstance(route, APIRoute | Route):
            yield route


def _call(route: APIRoute, method: str, fields: Sequence[str]) -> Call:
    asked = [route.dependant, *route.dependant.dependencies]
    body = route.body_field
    upload = "multipart/form-data" in (route.openapi_extra or {}).get("requestBody", {}).get("content", {})
    return Call(
        method=method,
        path=route.path,
        in_path=[_parameter(one) for one in route.dependant.path_params],
        in_query=[_parameter(one) for one in route.dependant.query_params],
        in_headers=[_parameter(one) for part in asked for one in part.header_params],
        body=None if body is None else _schema(body),
        takes_upload=upload,
        takes_form=method == "POST" and body is None and not upload and not route.include_in_schema,
        form_fields=fields,
    )


def _parameter(one: Any) -> Parameter:
    return Parameter(name=one.alias, schema=_schema(one))


def _schema(one: Any) -> dict[str, Any]:
    return TypeAdapter(one.field_info.annotation).json_schema()


def _form_fields() -> list[str]:
    """The names of all fields of the pages' forms."""
    folder = resources.files("kbslurm.api.pages").joinpath("templates")
    with resources.as_file(folder) as there:
        texts = [page.read_text() for page in sorted(there.rglob("*.html"))]
    return sorted(
        {name for text in texts for name in re.findall(r'<(?:input|textarea|select)[^>]* name="(\w+)"', text)}
    )
