"""A client as strict as popcorn-cli, and what it must be able to do. `make test-popcorn CLI=PATH` adds the real one."""
