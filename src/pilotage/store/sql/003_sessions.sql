-- Sessions that can be ended by those who began them.

-- The token that a pilot enrolled with: when that is revoked, the pilot is sent away.
ALTER TABLE pilot ADD COLUMN token INTEGER;
CREATE INDEX pilot_token ON pilot (token) WHERE state NOT IN ('down', 'failed', 'lost');
