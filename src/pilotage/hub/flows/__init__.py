"""Workflows across sites: what is due goes out, what sites say comes in, and nothing is lost.

    store ──▶ Service ──▶ Data.prepare ──▶ attempt + message, in one transaction ──▶ Line ──▶ site
      ▲                                                                                        │
      └── moves.end ◀── Data.check ◀── moves.hear ◀── status, in one transaction ◀── Line ◀────┘

Decisions are those of `pilotage.flow.moves`; what is here brings them to the outside and back.
"""
