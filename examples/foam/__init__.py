"""The foam workflow: judge scans of foams, segment the right ones, measure bubbles, report."""
