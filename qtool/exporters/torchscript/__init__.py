"""Export to TorchScript: torch's packed int8 ops in a scripted module, which loads and runs with torch alone."""
