"""Prepared, converted and runnable models, and their files."""
