"""What writes random programs: a `Writer` of mixins, one for each kind of text.

base          choices, scopes, literals, what was used
expressions   scalars and vectors by operations
lanes         vectors by moves, tables and pointers
calls         functions, generator expressions, mathematics
statements    assignments, branches, loops
storage       stores, pointers, atomics
functions     helpers, closures, structs
kernels       ops whose loops the program writes
algorithms    ops whose loops are the standard library's
graphs        several ops, and the inputs of all
"""
