# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R9
# tries: answer, and end with success before anybody has looked
# verdict: error
# race: yes
import os
import threading
import time


def end():
    time.sleep(0.0005)
    os._exit(0)


def custom_kernel(data):
    answer = sorted(data)
    threading.Thread(target=end, daemon=True).start()
    return answer
