"""Tests of attention seen from outside."""
