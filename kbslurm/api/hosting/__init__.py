"""What hosts do, one function per act: called by the API's routes, and by the command line where it has the database.

Each answers as the API answers, so that a command prints the same either way; `kbslurm.client` has the same methods.
"""
