"""Finds the native code of a graph in the cache, in a package or through the compiler, and loads it."""
