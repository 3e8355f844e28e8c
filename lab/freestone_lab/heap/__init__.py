"""A process seen from inside: statistics, profiles and leaks of one program under libfreestone."""
