"""Fusion and memory plans."""
