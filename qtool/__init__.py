"""Takes a trained float PyTorch model to int8 for a named backend."""

from qtool._version import __version__

__all__ = ["__version__"]
