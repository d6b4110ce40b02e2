"""Code that runs the threads of a launch on a CPU, and checks what they do with memory."""
