"""Types of graph values: dims, strides, promotion."""
