"""A problem's folder or file → a Problem, or one sentence saying what is wrong and where."""
