"""Machine code that every process loads once: the thread pool, and calls of the libraries of GPUs."""
