"""Sites with an agent as places: jobs go there as messages, and statuses come back.

In come claims of the matchmaker and statuses of sites; out go messages, and ends of attempts.
"""
