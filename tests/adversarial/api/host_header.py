"""Have pages and sign-in redirects name an address of the attacker's, by the request's own headers."""

from __future__ import annotations

from tests.adversarial.api_ground import Ground

EVIL = "evil.example"
PATHS = ("/", "/problem/transpose", "/board/transpose/", "/login", "/auth/login/github", "/me", "/s/1", "/nowhere/")


def attack(ground: Ground) -> None:
    forged = [
        {"Host": EVIL},
        {"Host": f"127.0.0.1@{EVIL}"},
        {"Host": f"{EVIL}:80"},
        {"X-Forwarded-Host": EVIL},
        {"Forwarded": f"host={EVIL}"},
        {"X-Forwarded-Proto": "https", "X-Forwarded-Server": EVIL},
    ]
    with ground.client(follow_redirects=False) as http:
        for path in PATHS:
            for headers in forged:
                answer = http.get(path, headers={"Accept": "text/html", **headers})
                said = answer.text + str(list(answer.headers.values()))
                if f"//{EVIL}" in said or (EVIL in said and answer.status_code < 400):
                    ground.fault(f"GET {path} with {headers} names {EVIL}: status {answer.status_code}")
