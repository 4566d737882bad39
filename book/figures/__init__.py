"""Diagrams of the prose pages, drawn with kernels.plots."""
