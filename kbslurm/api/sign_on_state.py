"""The state that goes out with a browser and must come back: signed by us, for one provider, for ten minutes, once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from kbslurm.api.context import Context
from kbslurm.api.derived_secrets import derived
from kbslurm.api.providers import ProviderName
from kbslurm.api.sessions import safe_next
from kbslurm.errors import Refused
from kbslurm.store.views import Person

STATE_FOR = timedelta(minutes=10)


def new_state(context: Context, name: ProviderName, proof: str, person: Person | None, next_: str) -> str:
    told = {
        "p": name,
        "e": int((context.clock.now() + STATE_FOR).timestamp()),
        "b": hashlib.sha256(proof.encode()).hexdigest(),
        "l": person.id if person else None,
        "n": safe_next(next_),
    }
    body = base64.urlsafe_b64encode(json.dumps(told).encode()).decode()
    return f"{body}.{_signature(context, body)}"


def checked_state(context: Context, name: ProviderName, state: str, proof: str) -> dict[str, Any]:
    body, _, signature = state.partition(".")
    refused = Refused("this sign-in has expired", hint="Start again.")
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), _signature(context, body).encode()):
        raise refused
    told: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body))
    now = context.clock.now()
    ends_at = datetime.fromtimestamp(told["e"], UTC)
    mine = hashlib.sha256(proof.encode("utf-8", "replace")).hexdigest()
    if told["p"] != name or ends_at <= now or not proof or not hmac.compare_digest(mine, told["b"]):
        raise refused
    if not context.store.tokens.use_state(hashlib.sha256(body.encode()).digest(), ends_at, now=now):
        raise refused
    return {"link": told["l"], "next": told["n"]}


def _signature(context: Context, body: str) -> str:
    return derived(context, "state", body)
