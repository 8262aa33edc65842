"""Events are made at one site, simulated in parallel at another, and counted at the first."""
