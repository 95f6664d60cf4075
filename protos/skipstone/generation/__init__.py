"""Generated stubs of `skipstone.generation`."""
