"""A Django project of the tests: its settings, and an app with tasks of all kinds."""
