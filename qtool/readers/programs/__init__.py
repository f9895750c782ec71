"""Reads the programs of torch.export, .pt2 files, as data: tensors, and layers with what quantizes them."""
