"""Rank 0 sums and sends the sum back."""

from ring import Ring
from task import input_t, output_t

ring = Ring()


def custom_kernel(data: input_t) -> output_t:
    _, _, values = data
    if ring.rank:
        ring.send(0, values)
        return ring.receive(0)
    total = values
    for peer in ring.peers:
        total = list(map(int.__add__, total, ring.receive(peer)))
    for peer in ring.peers:
        ring.send(peer, total)
    return total
