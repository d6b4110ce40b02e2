"""Syntax tree -> typed program: the evaluator and what it knows."""
