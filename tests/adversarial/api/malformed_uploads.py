"""Upload what isn't multipart, so that a library's own words get into the log, outside its format."""

from __future__ import annotations

from tests.adversarial.api_ground import GOOD, Ground

START = b'--b\r\nContent-Disposition: form-data; name="file"; filename="k.py"\r\n\r\n'
BODIES = (
    b"", b"\r\n" * 50, b"--x\r\n", START + GOOD,  START.replace(b"\r\n", b"\n") + GOOD,
    b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n", b"--b\r\n: x\r\n\r\nx\r\n--b--\r\n",
    b"--b\r\n" + b"A: b\r\n" * 900,
    START.replace(b"file", b"\xff\xfe") + GOOD + b"\r\n--b--\r\n", b"--b--\r\n--b--\r\n",
)  # fmt: skip


def attack(ground: Ground) -> None:
    ada = ground.account("ada")
    with ground.client() as http:
        for path, who in (("/submission/transpose/H100/test", ada.as_author), ("/transpose/H100/test", {})):
            for body in BODIES:
                for media in (
                    "multipart/form-data; boundary=b",
                    "multipart/form-data",
                    'multipart/form-data; boundary="',
                    "x/y",
                ):
                    answer = http.post(path, content=body, headers={**who, "Content-Type": media})
                    if not 400 <= answer.status_code < 500:
                        ground.fault(f"{body[:60]!r} as {media} to {path}: status {answer.status_code}")
