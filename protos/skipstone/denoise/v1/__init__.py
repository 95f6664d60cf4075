"""Generated stubs of `skipstone.denoise.v1`."""
