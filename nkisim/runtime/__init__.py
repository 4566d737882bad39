"""What users call: kernels and their specialisations, framework bridges, profiles, the command
line."""
