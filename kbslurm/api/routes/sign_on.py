"""Signing in with a browser: GitHub, Discord, or a university's OpenID Connect provider.

A state goes out and must come back: signed by us, for one provider, within ten minutes, once, from the browser that it
was given to (a cookie holds the other half). People are identified by the provider's own ID for them, never by a name
or address that could change hands; only the first time, an address that the university has verified finds whoever a
host has entered on a roster with it. Linking an account to a signed-in person needs their session before and after.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import RedirectResponse

from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.derived_secrets import challenge, derived
from kbslurm.api.door import Door
from kbslurm.api.identity import check_not_banned
from kbslurm.api.providers import Account, Provider, ProviderName, account_of, configured
from kbslurm.api.sessions import SESSION, check_is_from_us, check_same_site, open_session, set_cookie, signed_on
from kbslurm.api.sign_on_state import STATE_FOR, checked_state, new_state
from kbslurm.contract.base import Fine
from kbslurm.domain import access
from kbslurm.domain.run import PersonId
from kbslurm.errors import Refused, Unauthenticated
from kbslurm.observe.logs import teller
from kbslurm.store.views import Person

tell = teller("api.login")
PROOF = "kbslurm_login"
Named = Annotated[ProviderName, Path(description="The sign-in provider.")]


def routes(context: Context) -> APIRouter:
    """The router of these calls; a provider without a client_id is left out."""
    router = APIRouter(prefix="/auth", tags=["sign-on"], route_class=Door)
    sent = {
        303: {"description": "To the provider, or back to the original page."},
        **answers(Fine, 400, 401, 403, 404),
    }
    sent.pop(200)

    @router.get("/login/{provider}", status_code=303, response_class=RedirectResponse, responses=sent)
    async def login(
        provider: Named,
        request: Request,
        next_: Annotated[str, Query(alias="next", max_length=500)] = "/",
        link: Annotated[bool, Query(description="Link the account to the person who is signed in.")] = False,
    ) -> RedirectResponse:
        """Send a browser to the provider."""
        return await context.patiently(lambda: _away(context, provider, request, next_, link))

    @router.get("/callback/{provider}", status_code=303, response_class=RedirectResponse, responses=sent)
    async def callback(
        provider: Named,
        request: Request,
        state: Annotated[str, Query(max_length=2000)] = "",
        code: Annotated[str, Query(max_length=2000)] = "",
        error: Annotated[str, Query(max_length=200)] = "",
    ) -> RedirectResponse:
        """Where the provider sends the browser back to."""
        return await context.patiently(lambda: _back_again(context, provider, request, state, "" if error else code))

    @router.post("/logout", responses=answers(Fine, 403))
    def logout(request: Request) -> Ascii:
        """End the browser's session."""
        check_same_site(request)
        if found := request.cookies.get(SESSION):
            context.store.tokens.revoke_secret(found, now=context.clock.now())
        answer = Ascii({"status": "ok"})
        answer.delete_cookie(SESSION)
        return answer

    return router


def _away(context: Context, provider: ProviderName, request: Request, next_: str, link: bool) -> RedirectResponse:
    asked = configured(context, provider)
    person = signed_on(context, request) if link else None
    if link and not access.may_sign_in(person):
        raise Unauthenticated("you aren't signed in, so no account can be added", hint="Sign in first.")
    if link:
        check_is_from_us(request)
    proof = secrets.token_urlsafe(24)
    state = new_state(context, asked.name, proof, person, next_)
    query = {
        "response_type": "code",
        "client_id": asked.client_id,
        "redirect_uri": back(context, request, asked.name),
        "scope": asked.scope,
        "state": state,
        "code_challenge": challenge(derived(context, "pkce", proof)),
        "code_challenge_method": "S256",
    }
    if asked.name == "oidc":
        query["nonce"] = derived(context, "nonce", proof)
    answer = RedirectResponse(f"{asked.authorize_url}?{urlencode(query)}", status_code=303)
    set_cookie(context, request, answer, PROOF, proof, STATE_FOR, path="/auth")
    return answer


def _back_again(context: Context, provider: ProviderName, request: Request, state: str, code: str) -> RedirectResponse:
    asked = configured(context, provider)
    proof = request.cookies.get(PROOF, "")
    told = checked_state(context, asked.name, state, proof)
    if not code:
        raise Refused(f"{asked.name} rejected the sign-in", hint="Try again.")
    account = account_of(context, asked, code, proof, back(context, request, asked.name))
    person = _person(context, asked, account, _linking(context, request, told))
    check_not_banned(person)
    answer = RedirectResponse(told["next"], status_code=303)
    open_session(context, request, answer, person, f"browser ({asked.name})")
    answer.delete_cookie(PROOF, path="/auth")
    tell("signed in", provider=asked.name, person=person.id)
    return answer


def back(context: Context, request: Request, name: ProviderName) -> str:
    """Where the provider sends the browser: to the configured address, else to the one that was called."""
    base = context.config.server.public_url or str(request.base_url).rstrip("/")
    return f"{base}/auth/callback/{name}"


def _linking(context: Context, request: Request, told: Mapping[str, Any]) -> Person | None:
    """The person to link the account to: the one who started must still be signed in."""
    if told["link"] is None:
        return None
    person = signed_on(context, request)
    if person is None or not access.may_sign_in(person) or person.id != told["link"]:
        raise Refused("someone else is signed in now", hint="Start again.")
    return person


def _person(context: Context, asked: Provider, account: Account, linking: Person | None) -> Person:
    store, now = context.store, context.clock.now()
    if asked.name == "oidc":
        if linking is not None:
            store.people.link_subject(PersonId(linking.id), asked.issuer, account.subject)
            return linking
        return store.people.for_subject(asked.issuer, account.subject, account.name, email=account.email, now=now)
    if linking is not None:
        store.people.link_account(PersonId(linking.id), asked.name, account.subject)
        return linking
    return store.people.for_account(asked.name, account.subject, account.name, by="sign-on", now=now)
