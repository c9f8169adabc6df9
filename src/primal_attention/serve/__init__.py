"""A trained run behind HTTP: `primal serve RUN`, the extra `serve`."""
