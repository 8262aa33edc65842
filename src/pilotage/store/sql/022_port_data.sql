-- What attempts at sites whose agents dial this hub read and write at its port.
CREATE TABLE edge_access (
    job    INTEGER NOT NULL,
    number INTEGER NOT NULL,
    -- A file, or a folder with a slash at its end, below the folder of all such data.
    path   TEXT    NOT NULL,
    -- Whether the attempt writes it, rather than reads it.
    write  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job, number, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX edge_access_path ON edge_access (path);

-- Which sites may come by this hub's port is asked before an agent has enrolled, too.
CREATE INDEX token_agent_site ON token (site) WHERE scope = 'agent';

CREATE TRIGGER edge_access_forgotten AFTER DELETE ON edge_attempt
BEGIN
    DELETE FROM edge_access WHERE job = OLD.job AND number = OLD.number;
END;
