"""Classes of sequences and images: cross-entropy, accuracy, the epoch that a split chooses."""
