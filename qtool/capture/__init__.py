"""From model code and checkpoints to a float program."""
