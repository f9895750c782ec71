"""What finds the range of a tensor from data."""
