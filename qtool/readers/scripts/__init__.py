"""Reads TorchScript archives as text and data: the code is followed, and none of it is run."""
