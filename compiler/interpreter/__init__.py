"""The oracle: typed programs run on NumPy values."""
