"""Judges a definition of flashinfer-bench. Its own reference is `definition_reference.py`."""

import definition_reference
import torch
from definition import OP_TYPE, REQUIRED_MATCHED
from flashinfer_inputs import as_outputs, made

RTOL = ATOL = 1e-2  # flashinfer-bench's defaults; a number is wrong if it is off by both


def generate_input(seed: int, device: str, recorded, **case):
    return made(case, seed, device, recorded)


def ref_kernel(data):
    with torch.no_grad():
        return as_outputs(definition_reference.run(*data))


def check_implementation(data, output):
    if OP_TYPE == "sampling":
        return _in_support(data, output[0])
    expected = ref_kernel(data)
    for number, (got, want) in enumerate(zip(output, expected, strict=True)):
        where = f"output {number}"
        if got.shape != want.shape or got.dtype != want.dtype:
            return False, f"{where} is {got.dtype} {tuple(got.shape)}, not {want.dtype} {tuple(want.shape)}"
        off = (got.float() - want.float()).abs()
        far = (off > ATOL) & (off > RTOL * (want.float().abs() + 1e-8))
        far |= got.float().isnan() & ~want.float().isnan()
        same = got.float() == want.float()  # infinities
        wrong = int((far & ~same).sum())
        if wrong > (1 - REQUIRED_MATCHED) * got.numel():
            return False, f"{wrong} of {got.numel()} numbers of {where} are off by more than the tolerance"
    return True, ""


def _in_support(data, samples):
    """A drawn token may be any that the thresholds leave; how often each is drawn isn't checked."""
    from definition import INPUTS

    given = dict(zip(INPUTS, data, strict=True))
    probs = given["probs"].float()
    samples = samples.reshape(-1).long().to(probs.device)
    if samples.numel() != probs.shape[0] or ((samples < 0) | (samples >= probs.shape[1])).any():
        return False, "a token is outside of the vocabulary, or there isn't one for each row"
    ordered, order = probs.sort(dim=-1, descending=True)
    allowed = torch.ones_like(probs, dtype=torch.bool)
    if "top_k" in given:
        k = given["top_k"].long().clamp(1, probs.shape[1])
        allowed &= probs >= ordered.gather(1, (k - 1).unsqueeze(1))
    if "top_p" in given:
        kept = ordered.cumsum(-1) - ordered <= given["top_p"].float().unsqueeze(1) + 5e-2
        allowed &= torch.zeros_like(allowed).scatter(1, order, kept)
    bad = ~allowed.gather(1, samples.unsqueeze(1)).squeeze(1) | (probs.gather(1, samples.unsqueeze(1)).squeeze(1) <= 0)
    return (not bool(bad.any())), f"{int(bad.sum())} tokens are outside of what the thresholds leave"
