"""Devices and what lies in them: drivers, buffers, arrays, threads."""
