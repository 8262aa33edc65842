"""Workflows across sites: what is due becomes jobs, what becomes of those moves workflows on.

    store ──▶ Service ──▶ Data.prepare ──▶ attempt + job, in one transaction ──▶ Queue ──▶ place
      ▲                                                                                      │
      └── moves.end ◀── Data.check ◀── heard.news ◀── the end of the job, in one transaction ┘

Decisions are those of `pilotage.flow.moves`; what is here brings them to the outside and back.
"""
