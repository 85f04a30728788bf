"""Container images: recipes, pinned digests, and the programs that build and inspect them."""
