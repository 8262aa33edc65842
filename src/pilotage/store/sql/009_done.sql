-- Whether pilots that ended were of use.

-- Jobs that it had done when it ended.
ALTER TABLE pilot ADD COLUMN done INTEGER NOT NULL DEFAULT 0;
