"""Attention in the styles of many authors, all of it right: what the mutants are made of."""
