-- Statements about the file itself.

-- name: journal_mode
PRAGMA journal_mode;
