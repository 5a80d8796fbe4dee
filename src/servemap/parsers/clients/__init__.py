"""Result files of load clients of others."""
