"""The project's own speed: planning, overhead per case, memory. README.md says what is measured."""
