"""`make screenshots`: the pictures in docs/pictures, from the demo's real pages."""
