"""Fused passes over large tensors, each defined by ATen ops and, on the CPU, done bit for bit the same by C code."""
