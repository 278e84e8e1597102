"""Mutation: bugs that a program plants, one at a time, to see whether the tests notice each (`make mutate`).

python_mutators, sql_mutators, lua_mutators   pure functions from a source text to its mutants
mapping.py     traces once what each test touches (tracer.py) and keeps it outside of the repository (touch_map.py)
choice.py      the tests that touch a mutant's place (places.py); those that stand nearest to its module (nearest.py) come
               first, as many as a budget allows, and four times as many before it counts as not noticed
runner.py      plants a mutant in a copy of the source and runs these tests
known_bugs.py  bugs that were once not noticed, each with the tests that must notice it (`python -m tests.mutation --known`)
survivors.md   the mutants that no test notices, and why that is right
"""
