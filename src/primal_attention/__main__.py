"""`python -m primal_attention` is the command `primal`."""

from .cli import main

if __name__ == "__main__":
    main()
