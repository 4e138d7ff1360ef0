"""The laws of masks."""
