"""The reference pages, compared with what exists: nothing missing, nothing that is not there."""
