"""Sites with an agent: the agent, its broker, other clients, and scripted messages."""
