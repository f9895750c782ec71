"""Reads files without running anything in them."""
