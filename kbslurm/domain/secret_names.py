"""The environment variables that hold secrets. They are masked when shown, redacted in logs, and withheld from the
bot."""

from __future__ import annotations

SECRET_VARIABLES = (
    "DATABASE_URL",
    "DISCORD_TOKEN",
    "DISCORD_DEBUG_TOKEN",
    "GITHUB_TOKEN",
    "KBSLURM_RUN_KEY",
    "POPCORN_ADMIN_TOKEN",
    "KBSLURM_BOT_TOKEN",
    "MODAL_TOKEN_ID",
    "MODAL_TOKEN_SECRET",
    "CLI_DISCORD_CLIENT_SECRET",
    "CLI_GITHUB_CLIENT_SECRET",
    "OIDC_CLIENT_SECRET",
)
