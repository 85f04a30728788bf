"""How the ranks of one launch find each other, those of a submission and those of the reference."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

HOST = "127.0.0.1"
ON_GPUS = "nccl"  # the backend where each rank has a device
GROUP_S = 600.0  # longer than any phase: the judge's own limits end a collective that hangs


def environment(rank: int, world: int, port: int) -> dict[str, str]:
    """How a rank finds the others: what every launcher of distributed programs gives, and that it is all loopback."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
        "NCCL_SOCKET_IFNAME": "lo",
    }


def join_group(*, rank: int, world: int) -> str:
    """The process group of torch that problems of this kind find ready: nccl where there are GPUs, else gloo.

    For ranks of a submission before it is there, and for those of the reference. The backend's name.
    """
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    backend = "gloo"
    if torch.cuda.is_available():
        if torch.cuda.device_count() < world:
            raise OSError(f"{world} GPUs are needed, but {torch.cuda.device_count()} are visible")
        torch.cuda.set_device(rank)
        backend = ON_GPUS
    distributed.init_process_group(backend, rank=rank, world_size=world, timeout=timedelta(seconds=GROUP_S))
    return backend
