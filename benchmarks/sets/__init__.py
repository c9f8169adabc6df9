"""Tables, bags, lists and sparse kernel machines against the plain methods of each.

Every script appends one JSON line for each finished case to --out and skips those that are there.
"""
