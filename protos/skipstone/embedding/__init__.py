"""Generated stubs of `skipstone.embedding`."""
