"""The daemon: it gives runs to places, watches them, and writes down what became of them."""
