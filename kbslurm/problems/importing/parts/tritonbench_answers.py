"""What a call of one of the operator's functions answers."""

import torch


def answered(functions, data):
    """What it returns; or, where it returns nothing, the tensors that it was given and may have filled."""
    name, args, kwargs = data
    with torch.no_grad():
        found = functions[name](*args, **kwargs)
    if found is None:
        found = tuple(one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor))
    if isinstance(found, torch.Tensor):
        return found.detach()
    if isinstance(found, (tuple, list)):
        return tuple(one.detach() if isinstance(one, torch.Tensor) else one for one in found)
    return found
