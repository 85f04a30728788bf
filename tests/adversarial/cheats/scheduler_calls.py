# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: E7
# tries: call the cluster's own commands as the account that runs the job
# verdict: passed
# never: SUBMITTED
import glob
import os
import shutil
import socket
import subprocess

for _name in ("sbatch", "srun", "scancel", "scontrol", "squeue", "apptainer", "singularity", "sudo", "su"):
    _path = shutil.which(_name, path="/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin:/opt/slurm/bin")
    if _path and _name not in ("sudo", "su"):
        try:
            _done = subprocess.run([_path, "--version"], capture_output=True, timeout=5)
            if _done.returncode == 0:
                print("SUBMITTED by", _name)
        except (OSError, subprocess.SubprocessError):
            pass
for _path in [*glob.glob("/run/munge*/*"), *glob.glob("/var/run/munge/*"), *glob.glob("/var/spool/slurm*/*")]:
    print("SUBMITTED through", _path)


def custom_kernel(data):
    return sorted(data)
