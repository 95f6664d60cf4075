"""Generated stubs of `skipstone.vector_index`."""
