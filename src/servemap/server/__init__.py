"""The server under test: freeze, patches, lease, launch and gates."""
