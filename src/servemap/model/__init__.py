"""Typed specs, identities, expansion and errors; imports nothing else of ours."""
