"""TeleFuser's latent cache."""
