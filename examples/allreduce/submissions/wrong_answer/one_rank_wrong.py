"""Rank 0 has the sum; the last rank is one off in one place."""

from ring import Ring
from task import input_t, output_t

ring = Ring()


def custom_kernel(data: input_t) -> output_t:
    _, _, values = data
    for peer in ring.peers:
        ring.send(peer, values)
    total = values
    for peer in ring.peers:
        total = list(map(int.__add__, total, ring.receive(peer)))
    if ring.rank == ring.world - 1:
        total[-1] += 1
    return total
