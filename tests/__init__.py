"""The tests of headwise: laws first, examples second."""
