# ruff: noqa
# mypy: ignore-errors
# does: end processes that it started: a pool's, a program that takes too long, one of an event loop, one by one
# levels: 1 2
# landlock at 1: 6
import asyncio
import heapq
import multiprocessing
import os
import signal
import subprocess
import time

fork = multiprocessing.get_context("fork")


async def in_a_loop():
    process = await asyncio.create_subprocess_exec("sleep", "600")
    process.kill()
    return await process.wait()


def custom_kernel(data):
    half = len(data) // 2
    with fork.Pool(2) as pool:
        low, high = pool.map(sorted, [data[:half], data[half:]])
        pool.apply_async(time.sleep, [600])
    try:
        subprocess.run(["sleep", "600"], timeout=0.01)
    except subprocess.TimeoutExpired:
        pass
    child = fork.Process(target=time.sleep, args=[600])
    child.start()
    child.terminate()
    child.join()
    assert child.exitcode == -signal.SIGTERM
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert asyncio.run(in_a_loop()) == -signal.SIGKILL
    return list(heapq.merge(low, high))
