"""Parts of `bench_entry_cost.py`: what an entry takes, and what that means for many."""
