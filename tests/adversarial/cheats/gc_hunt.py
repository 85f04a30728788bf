# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C4 C6
# tries: find the reference, the answer or the judge among all objects of the process
# verdict: wrong
import gc


def custom_kernel(data):
    for thing in gc.get_objects():
        if callable(thing) and getattr(thing, "__name__", "") == "ref_kernel":
            return thing(data)
        if (
            isinstance(thing, list)
            and thing is not data
            and len(thing) == len(data) > 1
            and type(thing[0]) is type(thing[-1]) is float
        ):
            return thing
    return [0.0] * len(data)
