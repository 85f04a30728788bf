# ruff: noqa
# mypy: ignore-errors
# does: processes that start as fresh interpreters, with queues, a lock and a barrier between them
# levels: 1 2
import heapq
import multiprocessing
import queue

spawn = multiprocessing.get_context("spawn")
kept = []


def work(todo, done, lock, ready):
    ready.wait()
    while (part := todo.get()) is not None:
        with lock:
            done.put(sorted(part))


def custom_kernel(data):
    if not kept:
        todo, done = spawn.Queue(), spawn.SimpleQueue()
        ready, lock = spawn.Barrier(3), spawn.RLock()
        workers = [spawn.Process(target=work, args=(todo, done, lock, ready), daemon=True) for _ in range(2)]
        for worker in workers:
            worker.start()
        ready.wait(60)
        try:
            todo.get(timeout=0.01)
            raise AssertionError("nothing was put there")
        except queue.Empty:
            pass
        kept.extend((todo, done, workers, lock))
    todo, done, *_ = kept
    half = len(data) // 2
    todo.put(data[:half])
    todo.put(data[half:])
    return list(heapq.merge(done.get(), done.get()))
