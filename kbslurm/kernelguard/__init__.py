"""A scanner of the field that reads submissions' texts, for staff."""
