"""From the reference program to modules that run on an engine."""
