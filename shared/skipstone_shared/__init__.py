"""What several services need: errors, tensor codec, configuration, the server shell."""
