"""Parts of `bench_cacheplane.py`."""
