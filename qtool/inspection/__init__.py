"""Says what a file holds and where it fits its target or not."""
