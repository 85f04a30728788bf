# ruff: noqa
# mypy: ignore-errors
# does: an event loop with a program below it
import asyncio


async def work(data):
    made = await asyncio.create_subprocess_exec(
        "/bin/cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await made.communicate(b"x")
    assert out == b"x"
    return sorted(data)


def custom_kernel(data):
    return asyncio.run(work(data))
