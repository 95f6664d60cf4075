"""Generated stubs of `skipstone.denoise`."""
