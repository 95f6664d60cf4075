"""Generated stubs of `skipstone.generation.v1`."""
