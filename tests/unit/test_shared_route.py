"""Routes whose functions differ only in what they close over are read once, and each still is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import httpx
from fastapi import APIRouter, FastAPI, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel

from kbslurm.api.shared_route import SharedRoute


class Told(BaseModel):
    name: str


def app_of(name: str, responses: dict[int | str, dict[str, Any]] | None = None, more: int = 1) -> FastAPI:
    router = APIRouter(route_class=SharedRoute)

    def told(times: Annotated[int, Query(ge=1)] = more) -> dict[str, str]:
        """Who this is."""
        return {"name": name * times}

    router.get("/told", responses=responses)(told)
    app = FastAPI()
    app.router.routes.extend(router.routes)
    return app


def asked(app: FastAPI, path: str = "/told") -> tuple[int, Any]:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await client.get(path)

    answer = asyncio.run(ask())
    return answer.status_code, answer.json()


def routes(app: FastAPI) -> list[SharedRoute]:
    return [route for route in app.routes if isinstance(route, SharedRoute)]


def test_each_app_calls_its_own_function() -> None:
    ada, bob = app_of("ada"), app_of("bob")
    assert (asked(ada), asked(bob), asked(ada)) == (
        (200, {"name": "ada"}),
        (200, {"name": "bob"}),
        (200, {"name": "ada"}),
    )
    assert asked(bob, "/told?times=2")[1] == {"name": "bobbob"} and asked(bob, "/told?times=0")[0] == 422
    (mine,), (theirs,) = routes(ada), routes(bob)
    assert mine.dependant.query_params is theirs.dependant.query_params, "the signature was read twice"


def test_another_default_is_another_signature() -> None:
    assert asked(app_of("ada", more=1))[1] == {"name": "ada"}
    assert asked(app_of("ada", more=3))[1] == {"name": "adaadaada"}


def test_answers_are_described_as_the_framework_does() -> None:
    responses: dict[int | str, dict[str, Any]] = {
        200: {"model": list[Told]},
        404: {"model": Told, "description": "No."},
    }

    def plain(path: str, endpoint: Callable[..., Any], **more: Any) -> FastAPI:
        app = FastAPI()
        app.router.routes.append(APIRoute(path, endpoint, **more))
        return app

    ours = app_of("ada", responses)
    (route,) = routes(ours)
    theirs = plain("/told", route.endpoint, methods=["GET"], responses=responses)
    assert ours.openapi() == theirs.openapi()
    assert app_of("bob", responses).openapi() == theirs.openapi()
