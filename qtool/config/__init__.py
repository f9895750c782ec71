"""Configuration: what the user asks for, checked, with the place of every word."""
