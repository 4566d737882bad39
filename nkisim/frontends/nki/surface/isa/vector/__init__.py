"""Instructions of the Vector Engine, some of which other engines have as well."""
