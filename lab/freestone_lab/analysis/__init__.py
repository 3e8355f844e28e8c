"""From samples to claims: intervals, verdicts, and what changed between two results."""
