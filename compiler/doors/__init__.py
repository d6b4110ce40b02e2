"""Doors: functions through which other programs call an entry, each in its own calling convention."""
