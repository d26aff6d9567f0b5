"""The recording of a run: written by clients during the run, read by the checker."""
