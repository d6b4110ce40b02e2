"""Links object files: reads, lays out, relocates and writes them."""
