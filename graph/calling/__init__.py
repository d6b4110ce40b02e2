"""Makes a call of loaded code: inputs, memory, the native call, outputs, errors; and doors for other callers."""
