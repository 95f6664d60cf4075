"""Parts of `bench_blockcache.py`: models, both libraries, figures and plots."""
