"""Proofs, from weights and ranges alone, that kernels cannot saturate."""
