"""`python -m bench.canvas`: jobs that wait for jobs. Chains, fan-in, fan-out and steps, beside plain jobs in the same run."""
