"""Object files: read, relocated, linked, written."""
