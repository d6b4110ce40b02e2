"""The typed program: operations, builder, ranges, verifier, printer."""
