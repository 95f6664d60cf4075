"""Generated stubs of `skipstone.migration.v1`."""
