"""Workflows on SQLite. The contract is in `store.protocol.WorkflowStore`."""

from drumbeat.store.sqlite.parts import SqliteOperations


class SqliteWorkflows(SqliteOperations):
    pass
