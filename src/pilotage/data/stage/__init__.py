"""Data on its way to sites and home: each content once, checked, and gone on with after a cut."""
