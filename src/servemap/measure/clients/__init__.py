"""Load clients of others: their commands and marks, and what is read from what they left."""
