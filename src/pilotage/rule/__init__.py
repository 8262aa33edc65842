"""Rules: rule files and `Event`s come in, stored jobs (`JobSpec` and `Binding`) go out.

Dry runs, verdicts and the graph of rules come from the same patterns as firing.
"""
