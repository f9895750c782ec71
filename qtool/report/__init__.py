"""Turns reports and plans into text and JSON."""
