"""A fuzzer of the served API: every route of the app's own table, every kind of caller, well-formed and not.

A request follows from the seed and its number alone, so `KBSLURM_TEST_FUZZ_SEED=… KBSLURM_TEST_FUZZ_REQUESTS=…` sends
the same ones again. `calls.py` reads the routes, `values.py` and `requests.py` make requests of them, `wire.py` sends
those on sockets, `answers.py` says what is wrong with an answer, `world.py` is the service that is asked, and
`driving.py` puts them together. tests/flow/test_fuzz.py runs it.
"""
