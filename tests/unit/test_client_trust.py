"""Whose certificates clients accept: read once, none without TLS, and as the environment says where it may."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import pytest

from kbslurm.client.trust import trusted


def test_the_authorities_are_read_once_and_are_those_of_the_http_library() -> None:
    there = trusted("https://kernels.example.edu", trust_env=False)
    assert there is trusted("https://elsewhere.example.edu", trust_env=False) is trusted(trust_env=False)
    assert there.verify_mode is ssl.CERT_REQUIRED and there.check_hostname
    assert there.cert_store_stats()["x509_ca"] > 50


def test_without_tls_nobody_is_trusted() -> None:
    there = trusted("http://127.0.0.1:8000")
    assert there.cert_store_stats()["x509"] == 0
    assert there.verify_mode is ssl.CERT_REQUIRED and there.check_hostname


def test_the_environment_names_the_list_where_it_may(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = tmp_path / "ours.pem"
    all_of_them = Path(certifi.where()).read_text(encoding="utf-8")
    one.write_text(all_of_them.split("-----BEGIN", 1)[0] + "-----BEGIN" + all_of_them.split("-----BEGIN", 2)[1])
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(one))
    assert trusted().cert_store_stats()["x509"] == 1
    assert trusted(trust_env=False).cert_store_stats()["x509"] > 50
    monkeypatch.delenv("SSL_CERT_FILE")
    assert trusted().cert_store_stats()["x509"] > 50
