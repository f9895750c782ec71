"""The plan, and the edits of a graph that follow it."""
