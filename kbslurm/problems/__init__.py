"""A problem's folder or file → a Problem, or one sentence on what is wrong with it and where."""
