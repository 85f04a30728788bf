"""The node program: what it makes of answers that are cut short or no answers, and of the folders beside its own."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kbslurm.backends.local import supervise
from kbslurm.backends.ray import boot, node_program
from kbslurm.backends.ray.node_program import NO_ANSWER, Node

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CUT = b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"kep'
REFUSED = b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"
GARBLED = b"hello\r\n\r\n"


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that gives one answer after another, then hangs up; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10.0)  # then hang up on whoever comes no more

        def serve() -> None:
            for answer in answers:
                with suppress(OSError), server.accept()[0] as connection:
                    connection.recv(65_536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, name="service")
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_program, "PAUSES_S", (0.01,))
    monkeypatch.setattr(boot, "PAUSE_S", 0.01)


@pytest.mark.parametrize("first", [CUT, GARBLED, b""])
def test_what_is_no_whole_answer_is_asked_for_again(first: bytes) -> None:
    with answering(first, WHOLE) as url:
        node = Node("kb-x", "pool", url, b"k" * 32)
        bodies = list[bytes]()

        def body() -> bytes:
            bodies.append(node.numbered())
            return bodies[-1]

        assert node.insist("claim", body, 5.0) == (200, b"{}")
    assert bodies == [b'{"number": 1}', b'{"number": 2}'], "each call has a number of its own"


@pytest.mark.parametrize("first", [CUT, GARBLED])
def test_one_call_says_that_there_was_no_answer(first: bytes) -> None:
    with answering(first) as url, pytest.raises(NO_ANSWER):
        Node("kb-x", "pool", url, b"k" * 32).call("beat", b"{}")


def test_the_first_step_asks_again_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "key"
    key.write_text("aa" * 32)
    with answering(CUT, GARBLED, REFUSED) as url:
        assert boot.boot("kb-x", "pool", url, str(key)) == 6
    assert "the service refused this node (status 401)" in capsys.readouterr().err, "its third answer, the first whole"


@pytest.fixture
def above(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"kbslurm-node-{os.getuid()}"
    folder.mkdir(mode=0o700)
    return folder


def test_what_killed_processes_left_is_removed_and_nothing_that_is_in_use(above: Path) -> None:
    left, made_just_now = above / "of-left", above / "of-new"
    (left / "kb-y").mkdir(parents=True)
    os.utime(left, (time.time() - 3600,) * 2)
    made_just_now.mkdir()  # another process is between making its folder and holding it
    with node_program._place() as held:
        os.utime(held, (time.time() - 3600,) * 2)
        with node_program._place() as other:
            assert sorted(above.iterdir()) == sorted([held, other, made_just_now])
    assert list(above.iterdir()) == [made_just_now]


def test_what_is_left_in_memory_goes_with_the_folder_of_its_order_or_keeps_it_for_the_next_one(
    above: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "shm" / "kb-y-work"
    for folder in ("x" * 200, "y"):
        (work / folder).mkdir(parents=True)
    monkeypatch.setattr(supervise, "CLEARING_S", -1.0)
    with node_program._place() as held:
        (held / "kb-y").mkdir()
        (held / "kb-y" / "order.json").write_text(json.dumps({"work": str(work)}))
    assert work.exists() and list(above.iterdir()) == [held], "there was no time"
    os.utime(held, (time.time() - 3600,) * 2)
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with node_program._place():
        pass
    assert not work.exists() and list(above.iterdir()) == []


def test_a_nest_of_folders_that_an_attempt_left_keeps_nobody_from_its_result(above: Path) -> None:
    with node_program._place() as held:
        at = os.open(held, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("d", dir_fd=at)
            fd = os.open("d", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = fd
        os.close(at)
    assert list(above.iterdir()) == []
