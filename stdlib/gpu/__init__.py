"""What names of `gpu` mean that are written in the language."""
