-- Messages of workflows by when they are due, and by what they are about: the job of an attempt
-- stays until the site was heard on it, since it may have to be sent again.
CREATE INDEX flow_outbox_due ON flow_outbox (after);
CREATE INDEX flow_outbox_of ON flow_outbox (task, number);

-- Workflows that came by the broker and were refused.
CREATE TABLE flow_refused (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    time   REAL    NOT NULL,
    user   TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    reason TEXT    NOT NULL
) STRICT;
