"""Random networks: graphs of many ops, fused, op by op, and in NumPy."""
