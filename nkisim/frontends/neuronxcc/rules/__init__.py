"""The rules of this dialect for kernels: scope, loops, annotations, outputs."""
