"""[oidc]: signing in with a university's account."""

from __future__ import annotations

from dataclasses import dataclass, field

from kbslurm.config.sections.checks import web_address


@dataclass(frozen=True, kw_only=True)
class OidcSection:
    """A university's single sign-on (OpenID Connect). Its secret is OIDC_CLIENT_SECRET."""

    issuer: str = field(default="", metadata={"doc": "The provider's address; empty: none.", "check": web_address})
    client_id: str = field(default="", metadata={"doc": "Our client ID at the provider."})
    name: str = field(default="your university", metadata={"doc": "Its display name."})
