"""Values and pure rules, no I/O."""
