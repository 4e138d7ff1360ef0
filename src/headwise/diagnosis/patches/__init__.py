"""Patches: other texts for what was found wrong, and the trial of each."""
