"""Einkorn."""
