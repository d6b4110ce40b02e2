"""The names of the language, family by family."""
