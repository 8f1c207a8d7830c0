"""Scores -> pictures: one self-contained interactive page, and the static figures. Draws; computes nothing that a paper would print."""
