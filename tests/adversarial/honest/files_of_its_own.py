# ruff: noqa
# mypy: ignore-errors
# does: files of its own
import json, tempfile


def custom_kernel(data):
    with tempfile.TemporaryFile("w+") as f:
        json.dump(sorted(data), f)
        f.seek(0)
        return json.load(f)
