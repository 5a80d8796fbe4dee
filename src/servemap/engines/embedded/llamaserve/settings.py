"""Tunables of the server that have no flag; a campaign changes them with a patch."""

# Tokens that one forward pass works on at most: the physical batch.
N_UBATCH = 512

# Host memory for the state of idle prompts, in MiB. Off: saving states would take time from
# the requests that are measured.
CACHE_RAM_MIB = 0

# How much of a prompt a slot's cached prompt must share to be preferred, 0 to 1.
SLOT_PROMPT_SIMILARITY = 0.1
