"""One file a backend."""
