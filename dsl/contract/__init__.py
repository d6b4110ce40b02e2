"""What compiler and runtime agree on: compile units, the ABI, the levels of checks."""
