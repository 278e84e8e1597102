"""The statements of the SQLite engine; see `drumbeat.store.sqlfile`."""
