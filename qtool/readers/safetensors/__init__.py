"""Reads safetensors files as data: a header of JSON that says where each tensor lies, and the layers by their names."""
