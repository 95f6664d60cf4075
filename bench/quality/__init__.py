"""What reuse saves on the bundled model, and what it costs in quality."""
