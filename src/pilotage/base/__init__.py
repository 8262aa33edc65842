"""What every package may use: errors, time, units, text, names, durable files.

Nothing comes in, and nothing here knows of jobs, sites or the store.
"""
