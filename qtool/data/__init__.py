"""Where samples come from: pictures, small data sets, random values, the user's own code."""
