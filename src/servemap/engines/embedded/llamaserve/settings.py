"""Tunables of the server that have no flag; a campaign changes them with a patch."""

# Tokens that one forward pass works on at most: the physical batch.
N_UBATCH = 512

# Host memory that finished prompts are moved to, in MiB. With 0 they stay in the KV cache that
# all requests share, and each later token has to step over them: a long prompt then slows down
# whatever is measured after it.
CACHE_RAM_MIB = 256

# How much of a prompt a slot's cached prompt must share to be preferred, 0 to 1.
SLOT_PROMPT_SIMILARITY = 0.1
