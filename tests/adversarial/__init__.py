"""What attacks the harness, and what must never be taken for an attack: one file each, judged for real.

`cheats/` and `honest/` hold submissions; the comments at the head of each say what is expected (`corpus.py` reads
them). `trial.py` judges one of them and looks at what it left behind. `make test` does so once for each at a small
size (tests/flow/test_adversarial.py) and in containers (tests/cluster/inside/test_adversarial.py); `make adversarial`
is `python -m tests.adversarial`: every size, every isolation level, as many rounds as wanted.
"""
