"""TeleFuser's latent cache.

TeleFuser calls these in this order, and does without the cache when one of them raises:
``CacheServiceFactory.create_cache_service`` at its start, before it has an event loop; then for
each request ``adapter.build_query``, ``await service.lookup``, ``adapter.apply_resume``, its own
denoising, ``adapter.on_response``, ``await service.save``; at the end ``service.shutdown``, twice.
"""
