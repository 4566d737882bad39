"""What a compiler does to the instruction stream: folding, joining, fusing, choosing engines."""
