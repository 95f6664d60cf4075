"""Parts of `bench_eviction.py` and `bench_trace_text.py`: a log of requests sent past the cache."""
