"""The numbered migrations of the SQLite engine; see `drumbeat.store.migrations`."""
