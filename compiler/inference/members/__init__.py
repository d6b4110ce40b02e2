"""Attributes, methods and elements of values."""
