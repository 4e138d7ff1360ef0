"""Laws of the lazy map of attention."""
