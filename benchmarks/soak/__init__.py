"""Campaigns of misfortune: what must hold is tried again and again, with what chance brings.

    make soak MINUTES=30                             # all of them, one line each
    python -m benchmarks.soak kills --cases 200      # one of them, so many cases
    python -m benchmarks.soak masks --first 1234 --cases 1

A file is a campaign. What a case does follows from its number alone, so a failure can be repeated.
"""
