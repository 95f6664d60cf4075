"""The denoise executor: runs a diffusers pipeline from noise or from a donor's snapshot."""
