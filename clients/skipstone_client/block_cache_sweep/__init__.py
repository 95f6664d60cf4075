"""What `skipstone blockcache sweep` is made of: settings, runs, drift, choice and what is written.

Drawing needs matplotlib and Pillow, which come with the extra `cli`.
"""
