"""What `skipstone calibrate` is made of: pairs of prompts, runs, distances, the fit, the report.

Drawing needs matplotlib and pictures Pillow; both come with the extra `cli`.
"""
