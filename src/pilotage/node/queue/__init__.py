"""A batch system of one machine: background processes that are queued, listed and cancelled.

Each submission has a folder, and a supervisor that outlives the command that submitted it:

    N/order.json     what was asked for
    N/script         what runs, once for each item
    N/keeper.json    who keeps it: made once, so there is one
    N/I.begun        made once: by the supervisor, or by a cancel before it
    N/I.runs         which process it is
    N/I.over         how it ended
    N/I.stop         somebody wants it to end

All are written beside their place and moved there, or linked where only the first may win.
"""
