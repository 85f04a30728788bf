# ruff: noqa
# mypy: ignore-errors
# group: precomputation
# catalogue: P8 S1
# tries: leave answers in shared memory for the launches that are timed
# verdict: passed
# phases: all
# levels: 2
# never: REPLAYED
import os
import pickle

_PLACES = [p for p in ("/dev/shm", "/tmp", "/link", "/var/tmp") if os.access(p, os.W_OK)]
_BANK = {}
for _place in _PLACES:
    try:
        _BANK.update(pickle.load(open(f"{_place}/kb-marker-bank", "rb")))
    except (OSError, EOFError):
        pass


def custom_kernel(data):
    key = tuple(data[:4])
    if key in _BANK and len(data) > 40:
        print("REPLAYED", flush=True)
        return _BANK[key]
    answer = sorted(data)
    if len(_BANK) < 50:
        _BANK[key] = answer
        for place in _PLACES:
            try:
                pickle.dump(_BANK, open(f"{place}/kb-marker-bank", "wb"))
            except OSError:
                pass
    return answer
