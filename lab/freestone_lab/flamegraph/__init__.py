"""Heap profiles: read them, resolve their addresses, and show them as one self-contained page."""

from freestone_lab.flamegraph.model import Frame, Mapping, Profile, ProfileError
from freestone_lab.flamegraph.readers import read_profile
from freestone_lab.flamegraph.view import render_profiles, write_profiles

__all__ = ["Frame", "Mapping", "Profile", "ProfileError", "read_profile", "render_profiles", "write_profiles"]
