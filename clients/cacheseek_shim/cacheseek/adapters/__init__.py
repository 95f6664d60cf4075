"""Adapters by engine."""
