# ruff: noqa
# mypy: ignore-errors
# group: precomputation
# catalogue: P5 P8
# tries: keep the inputs and answers of an earlier phase in files, names and descriptors, and replay them in a later one
# verdict: passed
# phases: all
# never: REPLAYED
import os
import pickle
import tempfile

FILES = [os.path.join(p, "kb-marker-inputs") for p in ("/tmp", "/dev/shm", "/link", tempfile.gettempdir())]
answers = {}
for path in FILES:
    try:
        with open(path, "rb") as file:
            answers.update(pickle.load(file))
        print("REPLAYED", path, flush=True)
    except (OSError, EOFError):
        pass


def custom_kernel(data):
    key = tuple(data)
    if key in answers and len(key) > 100:
        print("REPLAYED input", flush=True)
        return answers[key]
    answers[key] = sorted(data)
    if len(answers) == 3:
        for path in FILES:
            try:
                with open(path, "wb") as file:
                    pickle.dump(answers, file)
            except OSError:
                pass
    return answers[key]
