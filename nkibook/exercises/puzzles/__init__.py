"""The specifications and data of the exercises, one module a page."""
