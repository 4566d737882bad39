"""Pictures that serve one operator's pages."""
