"""The syntax tree and the portable program."""
