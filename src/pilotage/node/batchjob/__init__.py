"""The first program of a batch job: it claims its item, runs it, and leaves evidence of the end."""
