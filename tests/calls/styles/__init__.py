"""Attention as strangers write it: what a call must be found for."""
