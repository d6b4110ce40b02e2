"""Graphs over several ranks: communicators, meshes, and the collectives of native calls."""
