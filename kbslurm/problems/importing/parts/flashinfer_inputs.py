"""Inputs and outputs as a definition of flashinfer-bench describes them, which is in `definition.py`."""

import torch
from definition import AXES, CONSTRAINTS, INPUTS, OP_TYPE, OUTPUTS

RANGES = {torch.int8: (-128, 128), torch.int16: (-1024, 1024), torch.int32: (-1024, 1024), torch.int64: (-1024, 1024)}
OFFSETS = ("indptr", "cu_seqlens")


def made(case, seed, device, recorded):
    """The inputs in the definition's order. A case gives the axes that vary, and for an input a scalar, or
    `FILE.safetensors#TENSOR`; all others are drawn."""
    torch.manual_seed(seed)
    sizes = AXES | {name: value for name, value in case.items() if name not in INPUTS}
    return [_one(name, *INPUTS[name], case, sizes, device, recorded) for name in INPUTS]


def places(inputs, device):
    """Empty outputs, for a submission in destination-passing style."""
    sizes = dict(AXES)
    for (shape, _), value in zip(INPUTS.values(), inputs, strict=True):
        if shape is not None:
            sizes.update(zip(shape, value.shape, strict=True))
    return [
        torch.empty([sizes[axis] for axis in shape or ()], dtype=getattr(torch, dtype), device=device)
        for shape, dtype in OUTPUTS.values()
    ]


def as_outputs(found):
    """What a function returned, as a tuple of tensors in the definition's order."""
    if isinstance(found, dict):
        found = tuple(found[name] for name in OUTPUTS)
    elif not isinstance(found, (tuple, list)):
        found = (found,)
    if len(found) != len(OUTPUTS):
        raise ValueError(f"it returned {len(found)} outputs, not {len(OUTPUTS)}")
    dtypes = [getattr(torch, dtype) for _, dtype in OUTPUTS.values()]
    return tuple(
        one if isinstance(one, torch.Tensor) else torch.tensor(one, dtype=dtype)
        for one, dtype in zip(found, dtypes, strict=True)
    )


def _one(name, shape, dtype, case, sizes, device, recorded):
    given = case.get(name)
    if isinstance(given, str):
        file, _, key = given.partition("#")
        return recorded(file)[key].to(device)
    if given is not None:
        return given
    kind = getattr(torch, dtype)
    if shape is None:
        return _scalar(name, kind, sizes)
    size = [sizes[axis] for axis in shape]
    if not kind.is_floating_point and kind != torch.bool:
        structured = _structured(name, shape, size, sizes)
        if structured is not None:
            return structured.to(kind).to(device)
        return torch.randint(*RANGES[kind], size, dtype=kind, device=device)
    if kind == torch.bool:
        return torch.randint(0, 2, size, device=device).bool()
    if OP_TYPE == "sampling" and name == "probs":
        return torch.softmax(torch.randn(size, dtype=torch.float32, device=device), dim=-1).to(kind)
    if OP_TYPE == "sampling" and name == "top_p":
        return (0.1 + 0.8 * torch.rand(size, device=device)).to(kind)
    if "scale" in name:
        return (0.01 + 0.05 * torch.rand(size, device=device)).to(kind)
    drawn = torch.randn(size, dtype=torch.float32 if kind.itemsize == 1 else kind, device=device)
    return drawn.clamp(-2, 2).to(kind) if kind.itemsize == 1 else drawn


def _scalar(name, kind, sizes):
    if not kind.is_floating_point:
        return 0
    width = next((n for axis, n in sizes.items() if axis in ("head_dim", "head_size", "head_dim_ckv", "qk_dim")), 1)
    return float(width) ** -0.5 if "scale" in name and width > 1 else 1.0


def _structured(name, shape, size, sizes):
    """Integers that mean something: offsets, indices and lengths. None if the name says nothing."""
    if name.endswith(OFFSETS):
        parts, total = size[0] - 1, _total(name, sizes)
        return torch.tensor([part * total // max(1, parts) for part in range(parts + 1)])
    if name.endswith("last_page_len"):
        return torch.randint(1, sizes.get("page_size", 1) + 1, size)
    if name == "seq_lens":
        return torch.randint(1, sizes["max_num_pages"] * sizes.get("page_size", 1) + 1, size)
    if name == "top_k":
        return torch.randint(1, min(64, sizes["vocab_size"]) + 1, size)
    bounds = {
        "kv_indices": ("num_pages",), "block_table": ("num_pages",), "sparse_indices": ("num_pages", "page_size"),
        "initial_state_indices": ("pool_size",), "state_batch_indices": ("state_cache_size",),
        "topk_ids": ("num_experts",), "positions": ("max_seq_len",),
    }  # fmt: skip
    if name not in bounds:
        return None
    bound = 1
    for axis in bounds[name]:
        bound *= sizes.get(axis, 1)
    count = size[-1]
    if name == "positions" or count > bound:
        return torch.randint(0, bound, size)
    rows = 1
    for n in size[:-1]:
        rows *= n
    return torch.stack([torch.randperm(bound)[:count] for _ in range(rows)]).reshape(size)


def _total(name, sizes):
    """The axis that the definition says is as long as the last offset."""
    for constraint in CONSTRAINTS:
        axis, equal, rest = constraint.partition("==")
        if equal and rest.strip().startswith(f"{name}[-1]"):
            return sizes[axis.strip()]
    raise ValueError(f"no constraint says what the last offset of {name} is")
