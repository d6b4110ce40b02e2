"""Evaluates tiles: matrices that the threads of a block hold together (see `inference.values.tiles`)."""
