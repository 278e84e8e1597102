"""The programs that workers load: one for each contender, with the same two handlers."""

FOLDER_NAME = "BENCH_FOLDER"
"""The environment variable that says where this measure's files are: a fresh folder for each."""
