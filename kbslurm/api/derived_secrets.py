"""Secrets of one sign-in, derived from a key of ours so that none has to be stored."""

from __future__ import annotations

import base64
import hashlib
import hmac

from kbslurm.api.context import Context


def derived(context: Context, purpose: str, text: str) -> str:
    """A value that only we can derive from this text for this purpose, so that states, nonces and verifiers needn't be
    stored."""
    key = context.store.settings.secret("sign_on")
    return hmac.new(key, f"{purpose}:{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
