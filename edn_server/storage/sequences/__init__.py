"""Tables of sequences: rectangles of their steps, half matches, waiting candidates, and monitors' counts."""
