"""The parts of the page, one idea a file: each makes HTML of what was read, or None."""
