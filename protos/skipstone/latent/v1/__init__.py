"""Generated stubs of `skipstone.latent.v1`."""
