"""Devices, buffers and host memory."""
