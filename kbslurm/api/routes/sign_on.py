"""Signing on with a browser: GitHub, Discord, or a university's OpenID Connect provider.

A state goes out and must come back: signed by us, for one provider, within ten minutes, once, to the browser that it
was given to (a cookie holds the other half). Whoever comes back is known by the provider's own number for them, never
by a name or an address that could change hands. A link to somebody signed on needs their session before and after.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlencode, urlsplit

import httpx
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import RedirectResponse
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.contract.base import Fine
from kbslurm.domain.run import PersonId
from kbslurm.errors import BackendTrouble, NotFound, Refused, Unauthenticated
from kbslurm.observe.logs import teller
from kbslurm.store.views import Person

tell = teller("api.login")
SESSION = "kbslurm_session"
PROOF = "kbslurm_login"
SESSION_FOR = timedelta(hours=12)
STATE_FOR = timedelta(minutes=10)
TIMEOUT_S = 10.0
ANSWER_CAP = 1_000_000
KEYS = ["RS256", "ES256", "PS256", "EdDSA"]
LEEWAY_S = 60
_NEXT = re.compile(r"/(?![/\\])[\x21-\x7e]*\Z")

ProviderName = Literal["github", "discord", "oidc"]
Named = Annotated[ProviderName, Path(description="Whom one signs on with.")]


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Where to send a browser, and where to ask who came back."""

    name: ProviderName
    client_id: str
    client_secret: str
    authorize_url: str
    token_url: str
    user_url: str
    scope: str
    issuer: str = ""
    keys_url: str = ""


@dataclass(frozen=True, kw_only=True)
class Account:
    """Whom a provider means: its own number for them, and what they are called."""

    subject: str
    name: str


def routes(context: Context) -> APIRouter:
    """The router of these calls; a provider without a client_id is not there."""
    router = APIRouter(prefix="/auth", tags=["sign-on"])
    sent = {
        303: {"description": "On to the provider, or back to the page that one came from."},
        **answers(Fine, 400, 401, 403, 404),
    }
    sent.pop(200)

    @router.get("/login/{provider}", status_code=303, response_class=RedirectResponse, responses=sent)
    async def login(
        provider: Named,
        request: Request,
        next_: Annotated[str, Query(alias="next", max_length=500)] = "/",
        link: Annotated[bool, Query(description="Add the account to whoever is signed on.")] = False,
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
            context.store.revoke_secret(found, now=context.clock.now())
        answer = Ascii({"status": "ok"})
        answer.delete_cookie(SESSION)
        return answer

    return router


def _away(context: Context, provider: ProviderName, request: Request, next_: str, link: bool) -> RedirectResponse:
    asked = configured(context, provider)
    person = signed_on(context, request) if link else None
    if link and person is None:
        raise Unauthenticated("nobody is signed on, so nothing can be added", hint="Sign on first.")
    proof = secrets.token_urlsafe(24)
    state = _state(context, asked.name, proof, person, next_)
    query = {
        "response_type": "code",
        "client_id": asked.client_id,
        "redirect_uri": back(context, request, asked.name),
        "scope": asked.scope,
        "state": state,
        "code_challenge": _challenge(_derived(context, "pkce", proof)),
        "code_challenge_method": "S256",
    }
    if asked.name == "oidc":
        query["nonce"] = _derived(context, "nonce", proof)
    answer = RedirectResponse(f"{asked.authorize_url}?{urlencode(query)}", status_code=303)
    _cookie(context, request, answer, PROOF, proof, STATE_FOR, path="/auth")
    return answer


def _back_again(context: Context, provider: ProviderName, request: Request, state: str, code: str) -> RedirectResponse:
    asked = configured(context, provider)
    proof = request.cookies.get(PROOF, "")
    told = _checked(context, asked.name, state, proof)
    if not code:
        raise Refused(f"{asked.name} did not let you in", hint="Try again.")
    account = _account(context, asked, code, proof, back(context, request, asked.name))
    person = _person(context, asked, account, _linking(context, request, told))
    if person.banned_at is not None:
        raise Refused("this account is banned", hint="Ask a host.")
    answer = RedirectResponse(told["next"], status_code=303)
    open_session(context, request, answer, person, f"browser ({asked.name})")
    answer.delete_cookie(PROOF, path="/auth")
    tell("signed on", provider=asked.name, person=person.id)
    return answer


def open_session(context: Context, request: Request, answer: RedirectResponse, person: Person, device: str) -> None:
    """Let the browser that gets this answer be this person's for a while."""
    now = context.clock.now()
    secret = context.store.issue_token(person.id, kind="web", device=device, expires_at=now + SESSION_FOR, now=now)
    _cookie(context, request, answer, SESSION, secret, SESSION_FOR)


def safe_next(text: str) -> str:
    """Where to go after signing on: an address of ours, or the first page."""
    return text if _NEXT.match(text) else "/"


def signed_on(context: Context, request: Request) -> Person | None:
    """Whose session this browser holds. For pages: calls of the API know nobody by a cookie."""
    secret = request.cookies.get(SESSION)
    return context.store.person_of_token(secret, now=context.clock.now()) if secret else None


def providers(context: Context) -> list[tuple[ProviderName, str]]:
    """Those that one can sign on with, and what people know them by."""
    config = context.config
    found: list[tuple[ProviderName, str]] = []
    if config.oidc.issuer and config.oidc.client_id:
        found.append(("oidc", config.oidc.name))
    if config.github.client_id:
        found.append(("github", "GitHub"))
    if config.discord.client_id:
        found.append(("discord", "Discord"))
    return found


def configured(context: Context, name: ProviderName) -> Provider:
    """The provider of that name, or NotFound when it isn't set up."""
    config = context.config
    if name not in [known for known, _ in providers(context)]:
        raise NotFound("sign-on provider", name, known=[known for known, _ in providers(context)])
    if name == "oidc":
        return _discovered(context)
    if name == "github":
        base = config.github.oauth_url
        return Provider(
            name=name,
            client_id=config.github.client_id,
            client_secret=config.secret("CLI_GITHUB_CLIENT_SECRET") or "",
            authorize_url=f"{base}/login/oauth/authorize",
            token_url=f"{base}/login/oauth/access_token",
            user_url=f"{config.github.oauth_api_url}/user",
            scope="read:user",
        )
    base = config.discord.oauth_url
    return Provider(
        name=name,
        client_id=config.discord.client_id,
        client_secret=config.secret("CLI_DISCORD_CLIENT_SECRET") or "",
        authorize_url=f"{base}/oauth2/authorize",
        token_url=f"{base}/api/oauth2/token",
        user_url=f"{base}/api/users/@me",
        scope="identify",
    )


def back(context: Context, request: Request, name: ProviderName) -> str:
    """Where the provider sends the browser: at the configured address, else at the one that was called."""
    base = context.config.server.public_url or str(request.base_url).rstrip("/")
    return f"{base}/auth/callback/{name}"


# ---------------------------------------------------------------------------------------------------------- the state


def _state(context: Context, name: ProviderName, proof: str, person: Person | None, next_: str) -> str:
    told = {
        "p": name,
        "e": int((context.clock.now() + STATE_FOR).timestamp()),
        "b": hashlib.sha256(proof.encode()).hexdigest(),
        "l": person.id if person else None,
        "n": safe_next(next_),
    }
    body = base64.urlsafe_b64encode(json.dumps(told).encode()).decode()
    return f"{body}.{_signature(context, body)}"


def _checked(context: Context, name: ProviderName, state: str, proof: str) -> dict[str, Any]:
    body, _, signature = state.partition(".")
    refused = Refused("this sign-on isn't good any more", hint="Begin again.")
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), _signature(context, body).encode()):
        raise refused
    told: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body))
    now = context.clock.now()
    ends_at = datetime.fromtimestamp(told["e"], UTC)
    mine = hashlib.sha256(proof.encode("utf-8", "replace")).hexdigest()
    if told["p"] != name or ends_at <= now or not proof or not hmac.compare_digest(mine, told["b"]):
        raise refused
    if not context.store.use_state(hashlib.sha256(body.encode()).digest(), ends_at, now=now):
        raise refused
    return {"link": told["l"], "next": told["n"]}


def _signature(context: Context, body: str) -> str:
    return _derived(context, "state", body)


def _derived(context: Context, purpose: str, text: str) -> str:
    """What only we can make of this text, for this purpose: states, nonces and verifiers need not be kept."""
    key = context.store.secret_setting("sign_on")
    return hmac.new(key, f"{purpose}:{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def _linking(context: Context, request: Request, told: Mapping[str, Any]) -> Person | None:
    """Whom the account is to be added to: who asked for it must still be who is signed on."""
    if told["link"] is None:
        return None
    person = signed_on(context, request)
    if person is None or person.id != told["link"]:
        raise Refused("somebody else is signed on now", hint="Begin again.")
    return person


# -------------------------------------------------------------------------------------------------------- the account


def _person(context: Context, asked: Provider, account: Account, linking: Person | None) -> Person:
    store, now = context.store, context.clock.now()
    if asked.name == "oidc":
        if linking is not None:
            store.link_subject(PersonId(linking.id), asked.issuer, account.subject)
            return linking
        return store.person_for_subject(asked.issuer, account.subject, account.name, now=now)
    if linking is not None:
        store.link_account(PersonId(linking.id), asked.name, account.subject)
        return linking
    return store.person_for_account(asked.name, account.subject, account.name, by="sign-on", now=now)


def _account(context: Context, asked: Provider, code: str, proof: str, redirect: str) -> Account:
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect,
        "client_id": asked.client_id,
        "client_secret": asked.client_secret,
        "code_verifier": _derived(context, "pkce", proof),
    }
    with httpx.Client(timeout=TIMEOUT_S) as http:
        told = _asked(asked, http, "POST", asked.token_url, data=form)
        if asked.name == "oidc":
            return _of_token(context, asked, http, told, _derived(context, "nonce", proof))
        token = told.get("access_token")
        if not isinstance(token, str) or str(told.get("token_type", "")).lower() != "bearer":
            raise Refused(f"{asked.name} did not let you in", hint="Try again.")
        user = _asked(asked, http, "GET", asked.user_url, headers={"Authorization": f"Bearer {token}"})
    number = str(user.get("id") or "")
    if not number.isascii() or not number.isdecimal():
        raise BackendTrouble(asked.name, "it didn't say who you are")
    called = user.get("login") or user.get("global_name") or user.get("username") or "somebody"
    return Account(subject=number, name=str(called)[:200])


def _of_token(context: Context, asked: Provider, http: httpx.Client, told: Mapping[str, Any], nonce: str) -> Account:
    """Whom the signed ID token names, when it is for us, from them, for this sign-on, and now."""
    try:
        keys = KeySet.import_key_set(_asked(asked, http, "GET", asked.keys_url))  # type: ignore[arg-type]
        token = jwt.decode(str(told.get("id_token", "")), keys, algorithms=KEYS)
        jwt.JWTClaimsRegistry(
            now=int(context.clock.now().timestamp()),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": asked.issuer},
            aud={"essential": True, "value": asked.client_id},
            exp={"essential": True},
            sub={"essential": True},
            nonce={"essential": True, "value": nonce},
        ).validate(token.claims)
    except (JoseError, ValueError, KeyError, TypeError) as error:
        tell("an ID token was refused", level="warning", why=type(error).__name__)
        raise Refused("your university did not let you in", hint="Try again, or ask a host.") from None
    claims = token.claims
    audience = claims["aud"]
    if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != asked.client_id:
        raise Refused("your university let you in somewhere else", hint="Ask a host.")
    called = claims.get("preferred_username") or claims.get("name") or "somebody"
    return Account(subject=str(claims["sub"])[:255], name=str(called)[:200])


def _discovered(context: Context) -> Provider:
    config = context.config.oidc
    start = Provider(
        name="oidc",
        client_id=config.client_id,
        client_secret=context.config.secret("OIDC_CLIENT_SECRET") or "",
        authorize_url="",
        token_url="",
        user_url="",
        scope="openid profile",
        issuer=config.issuer,
    )
    with httpx.Client(timeout=TIMEOUT_S) as http:
        told = _asked(start, http, "GET", f"{config.issuer}/.well-known/openid-configuration")
    if str(told.get("issuer", "")).rstrip("/") != config.issuer:
        raise BackendTrouble("sign-on", "the provider says that it is somebody else")
    places = {key: str(told.get(key, "")) for key in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
    secure = urlsplit(config.issuer).scheme == "https"
    if any(urlsplit(url).scheme not in (("https",) if secure else ("http", "https")) for url in places.values()):
        raise BackendTrouble("sign-on", "the provider names addresses that aren't safe")
    return Provider(
        **{
            **vars(start),
            "issuer": str(told["issuer"]),
            "authorize_url": places["authorization_endpoint"],
            "token_url": places["token_endpoint"],
            "keys_url": places["jwks_uri"],
        }
    )


def _asked(asked: Provider, http: httpx.Client, method: str, url: str, **more: Any) -> dict[str, Any]:
    """The provider's JSON object, or BackendTrouble; what it says of an error may hold secrets and stays unsaid."""
    headers = {"Accept": "application/json", **more.pop("headers", {})}
    try:
        answer = http.request(method, url, headers=headers, follow_redirects=False, **more)
        told = answer.json() if len(answer.content) <= ANSWER_CAP else None
    except (httpx.HTTPError, ValueError) as error:
        raise BackendTrouble("sign-on", f"{asked.name} can't be asked ({type(error).__name__})") from None
    if answer.status_code in (400, 401, 403) or (isinstance(told, dict) and "error" in told):
        raise Refused(f"{asked.name} did not let you in", hint="Try again.")
    if answer.status_code != 200 or not isinstance(told, dict):
        raise BackendTrouble("sign-on", f"{asked.name} answered {answer.status_code}")
    return told


def _cookie(
    context: Context,
    request: Request,
    answer: RedirectResponse,
    name: str,
    value: str,
    lasts: timedelta,
    path: str = "/",
) -> None:
    secure = (context.config.server.public_url or str(request.base_url)).startswith("https://")
    answer.set_cookie(
        name, value, max_age=int(lasts.total_seconds()), path=path, httponly=True, secure=secure, samesite="lax"
    )


def check_same_site(request: Request) -> None:
    """A form of another site can't end a session: browsers say where a request comes from."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused("this request comes from another site")
