"""Generated stubs of `skipstone`."""
