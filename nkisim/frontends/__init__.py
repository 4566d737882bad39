"""The dialects of NKI. Only these packages know how a kernel is written."""
