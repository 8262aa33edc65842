"""The state of sites and jobs: rows of the store come in, offers, sites and reasons go out.

The command line, the API and the page all read from here, so that they agree.
"""
