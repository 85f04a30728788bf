"""A stranger's machine: a bare Debian tree in which the README's commands are typed in a fresh clone."""
