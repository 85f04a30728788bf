"""GitHub's and Discord's OAuth and a university's OpenID provider, on loopback: as strict as they are.

A code is good once, for the redirect address, the client and the PKCE verifier that it was asked with.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

CLIENT, SECRET = "kbslurm-at-test", "client-secret-7731"


@dataclass
class SignOn:
    """One server for all three. `user` is who sits at the browser; `spoil` changes an ID token's claims."""

    now: Callable[[], float]
    user: dict[str, str] = field(default_factory=lambda: {"id": "501", "name": "ada"})
    spoil: dict[str, Any] = field(default_factory=dict)
    refuses: bool = False
    foreign_key: bool = False
    unsigned: bool = False
    url: str = ""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _tokens: dict[str, dict[str, str]] = field(default_factory=dict)
    _key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}, private=True))

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes next."""
        assert query["response_type"] == "code" and query["client_id"] == CLIENT
        assert query["code_challenge_method"] == "S256"
        back = query["redirect_uri"]
        if self.refuses:
            return f"{back}?{urlencode({'error': 'access_denied', 'state': query['state']})}"
        code = secrets.token_urlsafe(16)
        self._codes[code] = {**query, **{f"user_{name}": value for name, value in self.user.items()}}
        return f"{back}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            asked is None
            or form.get("grant_type") != "authorization_code"
            or (form.get("client_id"), form.get("client_secret")) != (CLIENT, SECRET)
            or form.get("redirect_uri") != asked["redirect_uri"]
            or challenge != asked["code_challenge"]
        ):
            return 400, {"error": "invalid_grant"}
        access = secrets.token_urlsafe(16)
        self._tokens[access] = {"id": asked["user_id"], "name": asked["user_name"]}
        told: dict[str, Any] = {"access_token": access, "token_type": "bearer"}
        if "openid" in asked["scope"].split():
            told["id_token"] = self._id_token(asked)
        return 200, told

    def user_of(self, bearer: str) -> dict[str, Any] | None:
        found = self._tokens.get(bearer.removeprefix("Bearer "))
        if found is None:
            return None
        return {"id": int(found["id"]), "login": found["name"], "username": found["name"]}

    def keys(self) -> dict[str, Any]:
        return dict(KeySet([self._key]).as_dict(private=False))

    def _id_token(self, asked: dict[str, str]) -> str:
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": f"subject-{asked['user_id']}",
            "preferred_username": asked["user_name"],
            "nonce": asked["nonce"],
            "iat": int(self.now()),
            "exp": int(self.now()) + 300,
            **self.spoil,
        }
        key = RSAKey.generate_key(2048, {"kid": "one"}, private=True) if self.foreign_key else self._key
        text = str(jwt.encode({"alg": "RS256", "kid": "one"}, claims, key))
        if self.unsigned:
            head = base64.urlsafe_b64encode(json.dumps({"alg": "none"}).encode()).decode().rstrip("=")
            return f"{head}.{text.split('.')[1]}."
        return text


@contextmanager
def running(now: Callable[[], float]) -> Iterator[SignOn]:
    """The server, for as long as this is entered."""
    fake = SignOn(now=now)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(place.query).items()}
            if place.path.endswith("/authorize"):
                self.send_response(302)
                self.send_header("Location", fake.authorize(query))
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif place.path == "/.well-known/openid-configuration":
                self._json(
                    200,
                    {
                        "issuer": fake.url,
                        "authorization_endpoint": f"{fake.url}/oidc/authorize",
                        "token_endpoint": f"{fake.url}/oidc/token",
                        "jwks_uri": f"{fake.url}/oidc/keys",
                    },
                )
            elif place.path == "/oidc/keys":
                self._json(200, fake.keys())
            elif place.path in ("/user", "/api/users/@me"):
                user = fake.user_of(self.headers.get("Authorization", ""))
                self._json(200 if user else 401, user or {"message": "who?"})
            else:
                self._json(404, {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._json(*fake.token({name: values[0] for name, values in parse_qs(body).items()}))

        def _json(self, status: int, told: Any) -> None:
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
