"""Builds graphs: the graph, its values, and where its kernels come from."""
