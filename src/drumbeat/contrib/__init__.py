"""Integrations with other libraries. Each module is public, and imported only by programs that use it."""
