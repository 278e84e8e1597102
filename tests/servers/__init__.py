"""Real servers for the tests, started from wheels on free ports; one that cannot start is a failure, not a skip."""
