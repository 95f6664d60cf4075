"""Search vectors with a small payload per entry. The README says how to run it."""
