"""Many requests from a file: read, run several at a time, and gone on with where they stopped."""
