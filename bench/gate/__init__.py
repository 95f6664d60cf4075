"""What the hit decision makes of pairs of prompts."""
