"""The contract between compiler and runtime: compile units, the ABI, the levels of checks."""
