"""What this dialect asks of a kernel: scope, loops, annotations, outputs."""
