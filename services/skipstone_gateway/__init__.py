"""The HTTP front of Skipstone: OpenAI-compatible endpoints and a web page over the orchestrator."""
