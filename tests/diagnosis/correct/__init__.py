"""Attention that is unusual on purpose, all of it right."""
