"""How exact an answer must be. Only the reference imports this file, so it stays with the judge."""

RELATIVE = 1e-9
ABSOLUTE = 1e-12
