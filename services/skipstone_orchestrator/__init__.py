"""The orchestrator: build_query -> lookup -> resume -> denoise -> save, and all fallbacks."""
