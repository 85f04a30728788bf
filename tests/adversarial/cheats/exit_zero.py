# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R1 R9
# tries: end with success before anything was judged
# verdict: error
import os

os._exit(0)
