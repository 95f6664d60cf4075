"""The module that TeleFuser imports when its latent cache is enabled."""

from skipstone_client.adapters.telefuser.cache_factory import CacheServiceFactory

__all__ = ["CacheServiceFactory"]
