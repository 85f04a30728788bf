"""A script on a GPU without a board: for hosts, and answered with what it wrote and how it ended."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Mapping
from typing import Any

import discord

from kbslurm.domain.amounts import span
from kbslurm.errors import Invalid
from kbslurm_bot import cards
from kbslurm_bot.interactions import Asked, as_asker
from kbslurm_bot.service import Away
from kbslurm_bot.text import gpus_typed

LOOK_S = 2.0
ANSWERS_S = 840.0  # Discord takes answers to a command for fifteen minutes
SHOWN = 1400  # what fits into a message beside the rest; more becomes a file


async def run_script(
    interaction: Asked, file_name: str, source: bytes, gpu: str, timeout_s: int, backend: str | None
) -> None:
    """Run it and answer with its output. The interaction has been deferred."""
    named = gpus_typed(gpu)
    if len(named) != 1:
        raise Invalid("a script runs on one GPU type", hint="Name one, or a leaderboard to test the file on.")
    told = await as_asker(
        interaction, lambda client: client.run_script(file_name, source, named[0], timeout_s, backend)
    )
    number = told["script"]
    what = f"Script {number} is queued for {cards.escaped(told['gpu'])}; its output comes here when it has ended."
    await interaction.followup.send(what, ephemeral=True)
    until = time.monotonic() + ANSWERS_S
    while not told["done"]:
        if time.monotonic() > until:
            said = f"Script {number} is still {told['state']}. `kbslurm run --show {number}` shows its output later."
            await interaction.followup.send(said, ephemeral=True)
            return
        await asyncio.sleep(LOOK_S)
        try:
            told = await as_asker(interaction, lambda client: client.script(number))
        except Away:
            continue  # it goes on meanwhile
    text, files = ended(told)
    await interaction.followup.send(text, files=files, ephemeral=True)


def ended(told: Mapping[str, Any]) -> tuple[str, list[discord.File]]:
    """A script's end: short output as text, longer output as a file."""
    at = f" at {cards.escaped(told['place'])}" if told["place"] else ""
    took = f" after {span(told['took_s'])}" if told["took_s"] is not None else ""
    end = cards.escaped(told["reason"] or told["state"])
    lines = [
        f"Script {told['script']} on {cards.escaped(told['gpu'])}{at}: {end}{took}.",
        f"-# {told['used_gpu_s']:g} of {told['gpu_s_per_day']:g} GPU-seconds used within a day",
    ]
    output = str(told["output"])
    if not output.strip():
        return "\n".join([*lines, "It wrote nothing."]), []
    if len(output) <= SHOWN and "```" not in output:
        return "\n".join([*lines, "```", output.rstrip("\n"), "```"]), []
    name = f"script-{told['script']}.txt"
    return "\n".join(lines), [discord.File(io.BytesIO(output.encode("utf-8", "replace")), filename=name)]
