"""Typed program -> typed program, one idea a file."""
