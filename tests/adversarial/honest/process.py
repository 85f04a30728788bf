# ruff: noqa
# mypy: ignore-errors
# does: process
import json, subprocess, sys

CODE = "import json, sys; print(json.dumps(sorted(json.load(sys.stdin))))"


def custom_kernel(data):
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CODE], input=json.dumps(data), capture_output=True, text=True
    )
    return json.loads(done.stdout)
