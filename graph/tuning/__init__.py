"""Chooses parameters of kernels by trying: what is tried in a child process, how it is compared, where it is kept."""
