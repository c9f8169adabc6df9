"""A number for a sequence: the mean square, judged by the share of the variance explained."""
