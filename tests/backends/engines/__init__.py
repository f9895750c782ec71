"""Engines in processes of their own: tests here import no torch, and instruction sets are capped from the start."""
