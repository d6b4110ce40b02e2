"""The package format: archives, manifests, libraries of kernels and their reference pages."""
