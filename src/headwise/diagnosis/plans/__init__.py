"""Plans: the ways in which a target is called to be examined, and what its masks mean."""
