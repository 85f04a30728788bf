# ruff: noqa
# mypy: ignore-errors
# does: numbers, arrays, conditions, barriers and bounded semaphores that processes share
# levels: 1 2
import multiprocessing

fork = multiprocessing.get_context("fork")


def work(numbers, low, high, turn, changed, gate, all_there):
    with gate:
        part = sorted(numbers[low:high])
    numbers[low:high] = part
    all_there.wait(60)
    with changed:
        turn.value += 1
        changed.notify_all()


def custom_kernel(data):
    numbers, turn, changed = fork.Array("d", data), fork.Value("i", 0), fork.Condition()
    gate, all_there = fork.BoundedSemaphore(1), fork.Barrier(2)
    half = len(data) // 2
    workers = [
        fork.Process(target=work, args=(numbers, low, high, turn, changed, gate, all_there))
        for low, high in ((0, half), (half, len(data)))
    ]
    for worker in workers:
        worker.start()
    with changed:
        assert changed.wait_for(lambda: turn.value == 2, 60)
    for worker in workers:
        worker.join()
    return sorted(numbers[:])
