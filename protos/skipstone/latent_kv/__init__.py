"""Generated stubs of `skipstone.latent_kv`."""
