"""Generated stubs of `skipstone.orchestrator`."""
