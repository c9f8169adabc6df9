"""Language models: the next token of a text, from all before it."""
