"""Generated stubs of `skipstone.migration`."""
