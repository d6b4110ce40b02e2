"""Gives each name of the language its rule."""
