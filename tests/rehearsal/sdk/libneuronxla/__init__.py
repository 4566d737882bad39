"""Stand-in for the PJRT plugin's Python package: a name and a version."""
