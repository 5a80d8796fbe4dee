"""The checks of a verdict, by what they look at; `judge.py` brings them together."""
