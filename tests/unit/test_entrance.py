"""What is taken up next of all that has arrived: polls before pages, a few in each turn, addresses in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kbslurm.api import page_turns
from kbslurm.api.entrance import A_TURN, PAGES, Entrance

PAGE, POLL = b"GET /board/main/H100 HTTP/1.1\r\n", b"GET /user/submissions/7 HTTP/1.1\r\n"


class Came:
    """A request that writes down when it is taken up."""

    def __init__(self, name: str, order: list[str], peer: str = "10.0.0.1", *, is_whole: bool = True) -> None:
        self.name, self.order, self.peer, self.is_whole = name, order, peer, is_whole

    def enter(self) -> bool:
        self.order.append(self.name)
        return self.is_whole


def in_a_loop(act: Callable[[Entrance, list[str]], Any]) -> list[str]:
    async def go() -> list[str]:
        order: list[str] = []
        await act(Entrance(), order)
        return order

    return asyncio.run(go())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_poll_is_taken_up_before_the_pages_that_came_first() -> None:
    async def act(entrance: Entrance, order: list[str]) -> None:
        pages = [Came(f"page {n}", order) for n in range(100)]
        for page in pages:
            entrance.come(page, PAGE)
        assert len(order) == A_TURN, "only so many in this turn"
        entrance.come(Came("poll", order), POLL)
        await turns(1)
        assert order[A_TURN] == "poll"
        await turns(100)
        assert len(order) == PAGES + 1, "and so many pages at the same time"
        for page in pages:
            entrance.leave(page)
            await turns(2)
        assert len(order) == 101

    in_a_loop(act)


def test_addresses_take_turns_within_a_kind() -> None:
    async def act(entrance: Entrance, order: list[str]) -> None:
        for n in range(50):
            entrance.come(Came(f"crowd {n}", order, "10.0.0.2"), POLL)
        entrance.come(Came("ada", order, "10.0.0.3"), POLL)
        await turns(30)

    order = in_a_loop(act)
    assert len(order) == 51 and order.index("ada") <= A_TURN + 1


@pytest.mark.parametrize("beginning", [b"GET / HTTP", b"GET /?from=1 ", b"HEAD /board/a/b ", b"GET /problem/a "])
def test_a_page_that_has_not_all_arrived_takes_no_place(beginning: bytes) -> None:
    async def act(entrance: Entrance, order: list[str]) -> None:
        for n in range(3 * PAGES):
            entrance.come(Came(f"half {n}", order, is_whole=False), beginning)
        await turns(3 * PAGES)
        entrance.come(Came("whole", order), beginning)
        await turns(2)

    assert in_a_loop(act)[-1] == "whole"


def test_who_has_left_is_not_taken_up_and_at_the_end_all_others_are() -> None:
    async def act(entrance: Entrance, order: list[str]) -> None:
        came = [Came(str(n), order) for n in range(2 * A_TURN)]
        for one in came:
            entrance.come(one, PAGE)
        entrance.leave(came[-1])
        entrance.leave(came[-1])
        entrance.let_all_in()
        await turns(5)

    assert in_a_loop(act) == [str(n) for n in range(2 * A_TURN - 1)]


def test_polls_without_end_leave_a_page_its_turn() -> None:
    async def act(entrance: Entrance, order: list[str]) -> None:
        for n in range(A_TURN):
            entrance.come(Came(f"first {n}", order), POLL)
        entrance.come(Came("page", order), PAGE)
        for n in range(20 * A_TURN):
            entrance.come(Came(f"poll {n}", order), POLL)
        await turns(40)

    order = in_a_loop(act)
    assert len(order) == 21 * A_TURN + 1 and order.index("page") == 2 * A_TURN


class Left(Entrance):
    """Counts who leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[Any] = []

    def leave(self, guest: Any) -> None:
        self.left.append(guest)


@pytest.mark.parametrize("answers", [False, True])
def test_a_page_that_fails_gives_its_turn_back_once(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    """Once: by the end of its answer the next request on its connection may have come."""
    monkeypatch.setattr(page_turns, "connection_of", lambda scope: "its connection")
    entrance = Left()

    async def page(scope: Any, receive: Any, send: Any) -> None:
        if answers:
            await send({"type": "http.response.start"})
            await send({"type": "http.response.body"})
        raise ZeroDivisionError

    async def nothing(*_: Any) -> Any:
        pass

    turns_of = page_turns.PagesInTurn(page, entrance=entrance)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(turns_of({"type": "http"}, nothing, nothing))
    assert entrance.left == ["its connection"]
