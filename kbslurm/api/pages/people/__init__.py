"""What people do: sign in, submit, compare, ask."""
