"""Block caching inside one request: which transformer blocks are not recomputed at a step."""
