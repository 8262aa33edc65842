"""Shapes: a demand comes in, the demand that is passed on goes out."""
