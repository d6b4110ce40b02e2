"""Mathematics, written in the kernel language."""
