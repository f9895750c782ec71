"""Training: from a prepared model and samples to a trained one, in steps that can be resumed bit for bit."""
