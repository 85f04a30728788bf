"""Secrets of one sign-on that are derived from a key of ours, so that none has to be kept."""

from __future__ import annotations

import base64
import hashlib
import hmac

from kbslurm.api.context import Context


def derived(context: Context, purpose: str, text: str) -> str:
    """What only we can make of this text, for this purpose: states, nonces and verifiers need not be kept."""
    key = context.store.settings.secret("sign_on")
    return hmac.new(key, f"{purpose}:{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
