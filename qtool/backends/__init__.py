"""What each backend can do, and which integer ranges follow from it."""
