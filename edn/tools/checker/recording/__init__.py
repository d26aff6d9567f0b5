"""The recording of a run: written by clients while it happens, read by the checker afterwards."""
