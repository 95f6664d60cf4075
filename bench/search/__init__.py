"""Parts of `bench_search.py`."""
