"""Drumbeat beside other things that a program uses. Each module is public, and imported by whoever wants it."""
