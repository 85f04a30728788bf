# ruff: noqa
# mypy: ignore-errors
# does: finds in every runner what its builder left, and can't change that
import errno
import os

HOME = os.environ["KBSLURM_CACHE"]
LEFT = os.path.join(HOME, "table")
if not os.path.exists(LEFT):
    # only the builder comes here: nothing was built before it
    assert not os.path.isdir("/built") or not os.listdir("/built"), "a runner was given nothing"
    assert not os.path.exists("/link.built")
    with open(LEFT, "w") as file:
        file.write("sorted")
elif os.path.isdir("/built/own"):
    for path in ("/built/own/table", "/built/own/more", "/built/more"):
        try:
            open(path, "a").close()
        except OSError as error:
            assert error.errno in (errno.EROFS, errno.EACCES), error
        else:
            raise AssertionError("what was built can be changed")
with open(LEFT) as file:
    HOW = {"sorted": sorted}[file.read()]


def custom_kernel(data):
    return HOW(data)
