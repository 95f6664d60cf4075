"""Generated stubs of `skipstone.orchestrator.v1`."""
