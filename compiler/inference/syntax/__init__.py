"""Evaluates each kind of expression and statement."""
