"""The ``latent_kv`` service: durable storage of snapshots; it knows no similarity."""
