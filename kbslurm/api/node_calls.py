"""Which attempt a node speaks for: proved by a MAC under its place's run key, before its body is read."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from starlette.requests import Request

from kbslurm.api.context import Context
from kbslurm.backends.paths import NAME
from kbslurm.backends.ray import calls
from kbslurm.domain.run import JobName
from kbslurm.errors import Unauthenticated


@dataclass(frozen=True, kw_only=True)
class NodeCall:
    """A call of a node for one attempt. `who` is the process there."""

    place: str
    name: JobName
    who: str
    digest: str
    key: bytes


def check(context: Context, request: Request) -> NodeCall:
    """The call, or Unauthenticated: only whoever has the run key can make it, for the attempt that it names."""
    place, name = request.path_params["place"], request.path_params["name"]
    verb = request.url.path.rpartition("/")[2]
    who, digest = request.headers.get(calls.WHO, ""), request.headers.get(calls.SUM, "")
    key = context.node_keys.of(place)
    told = request.headers.get(calls.MAC, "").encode("utf-8", "replace")
    if key is None or not calls.is_who(who) or NAME.fullmatch(name) is None:
        raise Unauthenticated("this isn't a node of ours")
    if not hmac.compare_digest(calls.mac(key, verb, place, name, who, digest).encode(), told):
        raise Unauthenticated("this isn't a node of ours", hint="Its run key must be the same as the service's.")
    return NodeCall(place=place, name=JobName(name), who=who, digest=digest, key=key)


async def taken(request: Request, call: NodeCall) -> bytes:
    """Its body, which is what the node has signed."""
    body = await request.body()
    if not hmac.compare_digest(calls.digest_of(body), call.digest):
        raise Unauthenticated("the body isn't the one that the node sent")
    return body
