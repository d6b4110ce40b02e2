"""Runs calls a second time in another way and compares the results."""
