"""Sessions, models, calls; how code is made and loaded."""
