# ruff: noqa
# mypy: ignore-errors
# does: have a thread start programs while calls go on, as one that compiles variants does
import subprocess, threading


def compiling():
    for _ in range(60):
        subprocess.run(["/bin/sh", "-c", "/bin/true; /bin/true"], check=True)


threading.Thread(target=compiling, daemon=True).start()


def custom_kernel(data):
    return sorted(data)
