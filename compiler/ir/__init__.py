"""The typed program: what it is made of, the records of its operations, builder, ranges, verifier, printer."""
