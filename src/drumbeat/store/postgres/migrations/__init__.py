"""The numbered migrations of the PostgreSQL engine; see `drumbeat.store.migrations`."""
