"""Handlers of the API, one file for each resource. They use the admin classes of the app."""
