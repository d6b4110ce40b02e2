"""Environment variables, the cache, files, fingerprints, tracebacks."""
