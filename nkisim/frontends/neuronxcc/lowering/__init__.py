"""From calls in a kernel to instructions: what the functions of nki.language and nki.isa do."""
