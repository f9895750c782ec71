"""What a file says about itself, and its JSON form."""
