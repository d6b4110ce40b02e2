"""Errors, codes and explanations, places in the author's text, the collection of several mistakes."""
