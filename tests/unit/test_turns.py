"""Clients take turns: addresses first, then the tokens of one address."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from kbslurm.api.turns import Turns, Whose


def test_who_asks_for_much_delays_the_others_by_one_request_each() -> None:
    asked = [("greedy", "")] * 300 + [("ada", ""), ("bob", "")]
    served = asyncio.run(served_in_order(asked))
    assert served.index(("ada", "")) <= 2 and served.index(("bob", "")) <= 3
    assert sorted(served) == sorted(asked)


def test_so_do_the_tokens_of_one_address_and_made_up_ones_hold_up_only_their_own() -> None:
    asked = [("hall", "greedy")] * 100 + [("hall", "ada")] + [("evil", str(n)) for n in range(100)] + [("home", "bob")]
    served = asyncio.run(served_in_order(asked))
    assert served.index(("hall", "ada")) <= 8 and served.index(("home", "bob")) <= 4


def test_within_one_token_it_is_first_come_first_served() -> None:
    async def go() -> list[int]:
        turns, order = Turns(1), list[int]()

        async def ask(number: int) -> None:
            async with turns.turn(Whose(address="a")):
                await asyncio.sleep(0)
                order.append(number)

        await asyncio.gather(*(ask(number) for number in range(20)))
        return order

    assert asyncio.run(go()) == list(range(20))


def test_the_reserve_is_for_those_who_may_be_hosts() -> None:
    async def go() -> list[str]:
        turns, order, gate = Turns(3, reserved=1), list[str](), asyncio.Event()

        async def ask(name: str, *, host: bool = False) -> None:
            async with turns.turn(Whose(address=name, may_be_host=host)):
                order.append(name)
                if not host:
                    await gate.wait()

        crowd = [asyncio.create_task(ask(f"c{n}")) for n in range(5)]
        await asyncio.sleep(0)
        await asyncio.wait_for(ask("host", host=True), 10)
        gate.set()
        await asyncio.gather(*crowd)
        return order

    assert asyncio.run(go()) == ["c0", "c1", "host", "c2", "c3", "c4"]


def test_no_place_is_lost_when_requests_are_cancelled() -> None:
    async def go() -> int:
        turns, chance = Turns(4), random.Random(7)

        async def ask(number: int) -> None:
            async with turns.turn(Whose(address=str(number % 7), token=str(number % 3))):
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(ask(number)) for number in range(400)]
        for _ in range(60):
            await asyncio.sleep(0)
            for task in chance.sample(tasks, 4):
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not turns._everyone._waiting
        return turns._everyone.free

    assert asyncio.run(go()) == 4


async def served_in_order(asked: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    turns, order = Turns(1), list[tuple[str, str]]()

    async def ask(address: str, token: str) -> None:
        async with turns.turn(Whose(address=address, token=token)):
            order.append((address, token))
            await asyncio.sleep(0)

    await asyncio.gather(*(ask(*one) for one in asked))
    return order
