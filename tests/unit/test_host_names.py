"""Which Host headers name this service."""

from __future__ import annotations

import pytest

from kbslurm.api.host_names import HostNames
from kbslurm.config.sections.server import ServerSection

OURS = HostNames(ServerSection(listen="[2001:db8::1]:8000", public_url="https://kernels.münchen.example:8443/boards"))


@pytest.mark.parametrize(
    "host",
    [
        "", "localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1:1", "127.9.9.9", "[::1]:8000", "[2001:db8::1]",
        "kernels.xn--mnchen-3ya.example", "Kernels.XN--MNCHEN-3YA.example:8443", "localhost:",
    ],
)  # fmt: skip
def test_these_are_ours(host: str) -> None:
    assert OURS.includes(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "localhost.evil.example", "localhost:80@evil.example", "[::1]evil.example", "[::1", "::1]",
        "localhost:80:90", "localhost/x", "localhost evil.example", "localhost,evil.example", "@localhost",
        "127.0.0.1.evil.example", "localhost\\evil", "2130706433", "münchen.example",
    ],
)  # fmt: skip
def test_these_are_not(host: str) -> None:
    assert not OURS.includes(host)
