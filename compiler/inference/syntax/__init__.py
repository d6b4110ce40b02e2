"""Expressions and statements."""
