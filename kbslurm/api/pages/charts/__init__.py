"""What charts are made of: numbers and moments turned into places, in percent. Pure; the templates draw them, each with
a table of the same data beside it."""
