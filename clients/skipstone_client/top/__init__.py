"""The live view of `skipstone top`: what is counted between two looks, and how it is shown."""
