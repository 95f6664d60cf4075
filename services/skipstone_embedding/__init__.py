"""Vectors of texts, pictures and clips. The README says how to run it."""
