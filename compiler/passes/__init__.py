"""Passes over the typed program: each file has one function of its own name, which changes a program for a target."""
