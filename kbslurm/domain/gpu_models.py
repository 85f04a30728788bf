"""Whether a device can be what a GPU type's name promises, as far as the two names say so."""

from __future__ import annotations

import re

# Longer names first: an L40S isn't an L40. What neither name mentions can't be compared.
_MODELS = re.compile(
    r"(?<![A-Z0-9])(GB300|GB200|GH200|B300|B200|B100|H800|H200|H100|H20|L40S|L40|L20|L4|A800|A100|A40|A30|A10G?|A2|T4|V100"
    r"|P100|MI\d{3}[AXP]?)(?![A-Z0-9])"
)
_SAME = {"A10G": "A10"}  # two clouds' names for one card
_MEMORY = re.compile(r"(?<![\d.])(\d{2,3}) ?GB\b")


def is_another_model(gpu: str, device: str) -> bool:
    """Whether this device, by its own name, certainly isn't of that type: an H200 isn't an `H100`, nor an A100 with
    80 GB an `A100-40GB`; an MI300X is an `MI300`, whose name leaves open which. Names without a known model, a site's
    own or a CPU's, say nothing."""
    promised, found = _model(gpu), _model(device)
    if not promised or not found:
        return False
    if promised != found and not (promised.startswith("MI") and found.startswith(promised)):
        return True
    memory, there = _MEMORY.search(gpu.upper()), _MEMORY.search(device.upper())
    sizes_differ = memory is not None and there is not None and memory[1] != there[1]
    return sizes_differ and "MIG" not in device.upper()


def _model(name: str) -> str:
    found = _MODELS.search(name.upper().replace("_", "-"))
    return _SAME.get(found[1], found[1]) if found else ""
