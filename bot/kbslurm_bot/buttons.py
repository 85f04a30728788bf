"""The buttons on a card. Their IDs say what they do, so they work after a restart; the API decides who may press
them."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import discord

from kbslurm.errors import Invalid, KbslurmError
from kbslurm_bot import cards
from kbslurm_bot.commands.personal import cancelled
from kbslurm_bot.commands.submit import submitted
from kbslurm_bot.failures import say_failure
from kbslurm_bot.interactions import Asked, bot_of

if TYPE_CHECKING:
    from kbslurm.client.http import Client

INLINE = 1800


class Pressed(discord.ui.DynamicItem[discord.ui.Button[Any]], template=cards.PRESSED):
    """Any of them, distinguished by its ID."""

    def __init__(self, button: discord.ui.Button[Any], act: str, submission: int) -> None:
        super().__init__(button)
        self.act, self.submission = act, submission

    @classmethod
    async def from_custom_id(
        cls, interaction: discord.Interaction[Any], item: discord.ui.Item[Any], match: re.Match[str], /
    ) -> Self:
        assert isinstance(item, discord.ui.Button)
        return cls(item, match["act"], int(match["submission"]))

    async def callback(self, interaction: discord.Interaction[Any]) -> None:
        try:
            await interaction.response.defer(ephemeral=True, thinking=True)
            await ACTS[self.act](interaction, self.submission)
        except Exception as error:
            await say_failure(interaction, error)
            if not isinstance(error, KbslurmError | discord.HTTPException):
                raise


async def log(interaction: Asked, submission: int) -> None:
    """Reasons and log, for its owner only."""
    service, user = bot_of(interaction).service, interaction.user
    full = await service.for_user(user.id, user.display_name, lambda client: client.full_submission(submission))
    text = cards.log(full)
    if len(text) <= INLINE and "```" not in text:
        await interaction.followup.send(f"```\n{text}\n```", ephemeral=True)
    else:
        file = discord.File(io.BytesIO(text.encode("utf-8", "replace")), filename=f"kbslurm-{submission}.txt")
        await interaction.followup.send(f"The log of submission {submission}.", file=file, ephemeral=True)


async def again(interaction: Asked, submission: int) -> None:
    """Submit the same file for the same GPU types, and at the same place if one was chosen, as a new submission with
    its own card. If that place is no longer available, the service says why and nothing is submitted."""
    service, user = bot_of(interaction).service, interaction.user

    def asked(client: Client) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        return client.full_submission(submission), client.why(submission, of_submission=True)

    full, whys = await service.for_user(user.id, user.display_name, asked)
    told = full["submission"]
    if not told["source"]:
        raise Invalid("its file is no longer stored", hint="Submit the file itself.")
    await submitted(
        interaction,
        told["board"],
        [row["gpu"] for row in told["runs"]],
        told["mode"],
        told["file_name"],
        told["source"].encode("utf-8", "surrogatepass"),
        next((one["pinned"] for one in whys if one["pinned"]), None),
    )


async def compare(interaction: Asked, submission: int) -> None:
    """Compare it with one's own previous best, the next ahead, and the leader."""
    service, user = bot_of(interaction).service, interaction.user
    full = await service.for_user(user.id, user.display_name, lambda client: client.full_submission(submission))
    contexts = await service.score_contexts(user.id, full)
    leaders = await service.leaders(user.id, full)
    await interaction.followup.send(cards.comparison(full, contexts, leaders)[:2000], ephemeral=True)


ACTS = {"cancel": cancelled, "log": log, "again": again, "compare": compare}
BUTTONS = (Pressed,)
