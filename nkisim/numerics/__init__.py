"""Execution of a traced kernel in NumPy: one function an opcode, the plan, the program."""
