"""Setting up, and running every check: what `make` calls."""
