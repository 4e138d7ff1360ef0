"""Attention seen from outside, while a model runs, without changing what it computes."""
