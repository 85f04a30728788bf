"""Turns what people write, statements and code, into markup that holds nothing but text of theirs."""
