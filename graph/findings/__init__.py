"""Reads what running kernels report: prints, failed checks, data races, findings of the simulator."""
