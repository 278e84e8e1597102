"""No models: Drumbeat makes its own tables. Django sends `post_migrate` only to apps that have this module."""
