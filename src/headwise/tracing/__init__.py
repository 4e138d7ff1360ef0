"""Tracing: the record of anyone's attention code as annotated source, every axis by its name."""
