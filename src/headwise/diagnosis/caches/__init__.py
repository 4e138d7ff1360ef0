"""Caches: a sequence in parts, with what was kept handed on, against all of it at once."""
