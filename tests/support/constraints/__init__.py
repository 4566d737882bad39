"""Cases for the documented constraints of each dialect: what breaks one, and what keeps it."""
