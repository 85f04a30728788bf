"""The steps of the walk: submit → queue → render → launch → (the harness) → collect → score → announce."""
