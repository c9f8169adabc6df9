"""Fast passes over tensors, and beside them the plain operations that are their ground truth."""
