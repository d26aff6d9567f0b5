"""What a filter means, written a second time from the documents alone, to check the product against.

Nothing in here imports the product and nothing in the product imports this. Clarity decides every choice:
a filter is a Python closure over plain values, a set of values is spelled out bound by bound.

| module | what it answers |
|---|---|
| `values` | what a JSON value of an attribute *is*: the thing that is compared |
| `meaning` | does this event match this filter; which of these events do |
| `ranges` | exactly, for conjunctions of ranges, equalities and prefixes: does one filter cover another |
| `cells` | exactly, for all filters without `suffix` and `contains`, by exhaustion: the same |
| `advertising` | does an advertisement cover an event or another one; can a filter match what it covers |
| `sequences` | which lists of events complete a sequence |
| `samples` | values in, at and around every constant of some filters, and events made of them |
"""
