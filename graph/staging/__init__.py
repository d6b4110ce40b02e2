"""Graphs as they are built: values, kernel sources."""
