"""Problems of other collections, written as directories of ours. Their text stays in what is imported.

A collection's file reads what is there and gives each problem with a function that makes its files. `parts/` has the
files of ours that go into them: they run in the judge and beside submissions, and are never imported here.
"""
