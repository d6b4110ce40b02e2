"""Stages of a compilation for people: listings and the page of `einkorn explore`."""
