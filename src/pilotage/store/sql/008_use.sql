-- How well pilots are used, as measured on their nodes, and who had them drain.

-- Who had it drain: 'pool' if its pool did, which may call it back; '' if anybody else did.
ALTER TABLE pilot ADD COLUMN drained TEXT NOT NULL DEFAULT '';
-- How busy payloads keep the cores that they have, from 0 to 1, and their bytes of memory; NULL if
-- nobody measured.
ALTER TABLE pilot ADD COLUMN busy     REAL;
ALTER TABLE pilot ADD COLUMN resident INTEGER;
