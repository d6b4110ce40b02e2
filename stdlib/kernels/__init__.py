"""The kernels of the ops of graphs. Each file is a family; a file that is there is found, nothing lists them."""
