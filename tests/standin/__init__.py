"""A stand-in for a GPU: `driver.cpp`, and for what tells of its clocks: `clocks.cpp`; built once in a test session."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from kbslurm_eval.device import driver, nvml
from tests.flow import harness_ground as ground
from tests.services import GXX, need

SOURCE = Path(__file__).with_name("driver.cpp")
LIBRARIES = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}
OTHERWISE = ("retain", "release_context", "gather")  # what HIP has in another form, or not at all


@functools.cache
def built(kind: str) -> Path:
    """The library of this kind."""
    need(GXX)
    folder = tempfile.mkdtemp(prefix="kb-standin-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    argv = ["g++", "-std=c++17", "-O0", "-shared", "-fPIC", "-pthread", str(SOURCE)]
    if kind == "hip":
        argv += ["-DSTANDIN_HIP", *(f"-D{c}={h}" for n, (c, h) in driver.NAMES.items() if n not in OTHERWISE)]
    library = Path(folder) / LIBRARIES[kind]
    subprocess.run([*argv, "-o", str(library)], check=True, timeout=240)
    return library


@functools.cache
def built_clocks() -> Path:
    """The library that tells of a device's clocks."""
    need(GXX)
    folder = tempfile.mkdtemp(prefix="kb-standin-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = Path(folder) / nvml.LIBRARY
    argv = ["g++", "-std=c++17", "-O0", "-shared", "-fPIC", str(SOURCE.with_name("clocks.cpp")), "-o", str(library)]
    subprocess.run(argv, check=True, timeout=240)
    return library


def with_torch_device(folder: Path) -> Path:
    """The harness with a torch that has a device (`torch_device.py`), in its judge and in its runners."""
    ground.copied(folder)
    shutil.copy(SOURCE.with_name("torch_device.py"), folder)
    main = folder / "__main__.py"
    main.write_text(main.read_text().replace("from ", "import torch_device\n\ntorch_device.play()\n\nfrom ", 1))
    return folder


def with_device_files(folder: Path) -> Path:
    """The harness on a machine that has a GPU's device files, which decide what a cage lets through."""
    ground.copied(folder)
    limits = folder / "kbslurm_eval/cage/limits.py"
    text, asked = limits.read_text(), 'os.listdir("/dev")'
    assert asked in text
    limits.write_text(text.replace(asked, '["nvidia-standin"]').replace('f"/dev/{n}" for n in', '"/dev/null" for n in'))
    return folder


def clocks(folder: Path, **settings: int) -> None:
    """A library beside a device's driver that tells of its clocks."""
    shutil.copy(built_clocks(), folder)
    (folder / "clocks.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))


def device(folder: Path, kind: str = "cuda", **settings: int) -> dict[str, str]:
    """The environment in which a process finds a device with these settings: a cage shows what is below CUDA_HOME."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.chmod(0o755)
    shutil.copy(built(kind), folder)
    (folder / "device.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return {"CUDA_HOME": str(folder), "LD_LIBRARY_PATH": str(folder), "PATH": "/usr/bin:/bin"}
