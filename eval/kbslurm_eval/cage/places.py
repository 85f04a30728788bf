"""This machine's directories that a cage shows, and those that anyone can write to."""

from __future__ import annotations

KEPT_ENV = (
    "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ROCM_PATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)  # fmt: skip
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
ETC_BELOW = ("passwd", "group", "nsswitch.conf")  # without its own root it sees the machine's
CPU_SHARE = tuple(  # libraries read it to choose their number of processes, and fail if it is there but unreadable
    f"/sys/fs/cgroup/{name}" for name in ("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
)
DEVICES = ("null", "zero", "full", "random", "urandom")
WRITABLE_BY_ALL = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # world-writable places
