"""Skipstone's bundled model: its scenes, captions, pictures, checker and training."""
