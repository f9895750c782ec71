"""Reads ExecuTorch programs, .pte files, as data: a flatbuffer of plans, and segments with constants and delegates."""
