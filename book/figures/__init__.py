"""Diagrams of the prose pages, drawn with nkibook.plots."""
