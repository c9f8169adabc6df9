"""The version of the package, where nothing else must be imported to know it."""

__version__ = "0.1.0"
