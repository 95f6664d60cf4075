"""Adapters that make Skipstone the latent cache of engines in the field."""
