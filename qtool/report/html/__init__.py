"""Turns reports into pages for a browser."""
