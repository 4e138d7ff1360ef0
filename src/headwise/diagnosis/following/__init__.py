"""Following: one run of a person's code, and what every tensor in it is made of."""
