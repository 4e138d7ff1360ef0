"""A network that reads dates: what it learns from, what it is made of, and a picture of where it looks."""
