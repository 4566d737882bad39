"""Tensors of `import nki`: memory, views of it, and how they are indexed."""
