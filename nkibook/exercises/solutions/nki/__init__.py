"""Answers in `import nki` to exercises of pages in both dialects, one module a page."""
