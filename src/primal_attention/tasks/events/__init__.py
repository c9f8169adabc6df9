"""Events in continuous time: sequences of (time, type), of which the next one is predicted."""
