"""What runs on the GPU: one file a family."""
