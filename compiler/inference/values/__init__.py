"""Defines what a value can be while a kernel is evaluated."""
