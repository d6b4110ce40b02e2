"""A rule for each name of the language."""
