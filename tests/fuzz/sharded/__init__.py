"""Random networks over the ranks of a mesh: what they are, what comes out of them, how they are made and made small."""
