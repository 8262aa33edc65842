-- Agents that came by this hub's port: one key counts for each, and each message looks for them.
CREATE INDEX token_agent ON token (site) WHERE scope = 'agent' AND uses IS NULL;
