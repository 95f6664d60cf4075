"""Generated stubs of `skipstone.embedding.v1`."""
