"""Run folders as files: no torch, nothing of training. Everything above reads and writes here."""
