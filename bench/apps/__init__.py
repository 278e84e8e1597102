"""The programs that workers load: one for each contender, with the same handlers."""

FOLDER_NAME = "BENCH_FOLDER"
"""The environment variable that says where this measure's files are: a fresh folder for each."""
URL_NAME = "BENCH_URL"
"""The one that says where this measure's database is, on an engine with a server."""
