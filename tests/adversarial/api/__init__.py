"""Attacks on the served API, one file each. `tests/adversarial/api_trial.py` runs them.

Each file's docstring says what it tries; `attack(ground)` does it and reports what it gained by `ground.fault(…)`.
"""
