"""Looks inside a program under libfreestone: its statistics, profiles and leaks."""
