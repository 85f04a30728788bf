"""The sign-in providers (GitHub, Discord, a university's OpenID Connect provider) and the identities they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

from kbslurm.api.context import Context
from kbslurm.api.derived_secrets import derived
from kbslurm.client.trust import trusted
from kbslurm.errors import BackendTrouble, NotFound, Refused
from kbslurm.observe.logs import teller

tell = teller("api.login")
TIMEOUT_S = 10.0
ANSWER_CAP = 1_000_000
KEYS = ["RS256", "ES256", "PS256", "EdDSA"]
LEEWAY_S = 60

ProviderName = Literal["github", "discord", "oidc"]


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Where to send a browser, and where to ask who signed in."""

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
    """A provider's identity: its own ID for the person, and their name. `email` only if the provider says that it has
    verified it."""

    subject: str
    name: str
    email: str | None = None


def providers(context: Context) -> list[tuple[ProviderName, str]]:
    """The providers that are set up, and their display names."""
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
    """The provider with that name, or NotFound if it isn't set up."""
    config = context.config
    if name not in [known for known, _ in providers(context)]:
        raise NotFound("sign-in provider", name, known=[known for known, _ in providers(context)])
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


def account_of(context: Context, asked: Provider, code: str, proof: str, redirect: str) -> Account:
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect,
        "client_id": asked.client_id,
        "client_secret": asked.client_secret,
        "code_verifier": derived(context, "pkce", proof),
    }
    with httpx.Client(timeout=TIMEOUT_S, verify=trusted()) as http:
        told = _asked(asked, http, "POST", asked.token_url, data=form)
        if asked.name == "oidc":
            return _of_token(context, asked, http, told, derived(context, "nonce", proof))
        token = told.get("access_token")
        if not isinstance(token, str) or str(told.get("token_type", "")).lower() != "bearer":
            raise Refused(f"{asked.name} rejected the sign-in", hint="Try again.")
        user = _asked(asked, http, "GET", asked.user_url, headers={"Authorization": f"Bearer {token}"})
    number = str(user.get("id") or "")
    if not number.isascii() or not number.isdecimal():
        raise BackendTrouble(asked.name, "it didn't return your identity")
    called = user.get("login") or user.get("global_name") or user.get("username") or "somebody"
    return Account(subject=number, name=str(called)[:200])


def _of_token(context: Context, asked: Provider, http: httpx.Client, told: Mapping[str, Any], nonce: str) -> Account:
    """The identity in the signed ID token, if it is for us, from them, for this sign-in, and current."""
    # With its cryptography a tenth of what the service's start computes, and few services have such a provider.
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

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
        raise Refused("your university rejected the sign-in", hint="Try again, or ask a host.") from None
    claims = token.claims
    audience = claims["aud"]
    if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != asked.client_id:
        raise Refused("your university's answer is for a different application", hint="Ask a host.")
    called = claims.get("preferred_username") or claims.get("name") or "somebody"
    email = claims.get("email")
    said = claims.get("email_verified")  # some providers write true as a text
    verified = isinstance(email, str) and (said is True or said == "true") and len(email) <= 254
    return Account(subject=str(claims["sub"])[:255], name=str(called)[:200], email=email if verified else None)


def _discovered(context: Context) -> Provider:
    config = context.config.oidc
    start = Provider(
        name="oidc",
        client_id=config.client_id,
        client_secret=context.config.secret("OIDC_CLIENT_SECRET") or "",
        authorize_url="",
        token_url="",
        user_url="",
        scope="openid profile email",
        issuer=config.issuer,
    )
    with httpx.Client(timeout=TIMEOUT_S, verify=trusted(config.issuer)) as http:
        told = _asked(start, http, "GET", f"{config.issuer}/.well-known/openid-configuration")
    if str(told.get("issuer", "")).rstrip("/") != config.issuer:
        raise BackendTrouble("sign-on", "the provider's metadata names a different issuer")
    places = {key: str(told.get(key, "")) for key in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
    secure = urlsplit(config.issuer).scheme == "https"
    if any(urlsplit(url).scheme not in (("https",) if secure else ("http", "https")) for url in places.values()):
        raise BackendTrouble("sign-on", "the provider's metadata contains unsafe addresses")
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
    """The provider's JSON object, or BackendTrouble; its error texts may contain secrets and aren't repeated."""
    headers = {"Accept": "application/json", **more.pop("headers", {})}
    try:
        answer = http.request(method, url, headers=headers, follow_redirects=False, **more)
        told = answer.json() if len(answer.content) <= ANSWER_CAP else None
    except (httpx.HTTPError, ValueError) as error:
        raise BackendTrouble("sign-on", f"{asked.name} can't be reached ({type(error).__name__})") from None
    if answer.status_code in (400, 401, 403) or (isinstance(told, dict) and "error" in told):
        raise Refused(f"{asked.name} rejected the sign-in", hint="Try again.")
    if answer.status_code != 200 or not isinstance(told, dict):
        raise BackendTrouble("sign-on", f"{asked.name} answered with status {answer.status_code}")
    return told
