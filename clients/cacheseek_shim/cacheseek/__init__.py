"""The name under which TeleFuser looks for its latent cache; Skipstone is behind it."""
