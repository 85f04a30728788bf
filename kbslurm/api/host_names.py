"""The names under which this service is reached. Pages and sign-in build addresses from the Host header, so a name that
isn't ours is refused before anything is built from it."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import httpx

from kbslurm.config.sections.server import ServerSection

SHOWN = 100
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.-]+))(?::[0-9]*)?")


class HostNames:
    """The public URL's name, the allowed ones, the address that it listens on, and this machine's loopback names."""

    def __init__(self, server: ServerSection) -> None:
        listens_on = server.listen.rpartition(":")[0]
        self._public_url = server.public_url
        self._names = {
            _configured(text)
            for text in (urlsplit(server.public_url).netloc, listens_on, "localhost", *server.allowed_hosts)
            if text
        }

    def includes(self, host: str) -> bool:
        """Whether this Host header names us. A request without one, of HTTP/1.0, names nobody else."""
        name = name_in(host)
        return not host or name in self._names or _is_loopback(name)

    def refusal(self, host: str) -> str:
        """What to tell whoever used another name."""
        told = f"this service isn't reached as {host[:SHOWN]!r}"
        if self._public_url:
            return f"{told}. Use {self._public_url}."
        return f"{told}. Its operator can add the name to allowed_hosts or set public_url, under [server]."


def name_in(host: str) -> str:
    """The name in a Host header, without its port, in lower case; empty if the header isn't one."""
    found = _HOST.fullmatch(host.strip().lower())
    return "" if found is None else found["address"] or found["name"].removesuffix(".")


def _configured(text: str) -> str:
    """The same of a configured name: an IPv6 address may lack its brackets, a name may have letters of any alphabet."""
    if text.count(":") > 1 and not text.startswith("["):
        return text.lower()
    return name_in(httpx.URL(f"http://{text}").raw_host.decode() if not text.isascii() else text)


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
