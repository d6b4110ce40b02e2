"""Python source -> portable program: registration, imports of kernel files, parsing."""
