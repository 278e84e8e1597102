"""The statements of the PostgreSQL engine; see `drumbeat.store.sqlfile`."""
