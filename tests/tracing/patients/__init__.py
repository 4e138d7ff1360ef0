"""Attention as strangers write it, in their own words, and beside each file what a careful reader says of each line."""
