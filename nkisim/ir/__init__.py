"""A traced kernel: buffers, access patterns, instructions, opcodes, the launch grid, loops,
dtypes."""
