"""What the parts of Skipstone cost on each of their backends, side by side."""
