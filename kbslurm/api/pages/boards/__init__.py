"""Boards: their page, what is found on it, the start page, the hall, and what of them leaves for elsewhere."""
