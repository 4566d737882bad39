"""Tensors as kernels of this dialect handle them: index expressions, masks, views."""
