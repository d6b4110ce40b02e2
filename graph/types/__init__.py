"""Types of graph values: dims, polynomials, strides, promotion."""
