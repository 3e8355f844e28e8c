"""Plans, schedules and runs experiments."""
