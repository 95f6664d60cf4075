"""Generated stubs of `skipstone.latent`."""
