"""Filters in XPath 1.0, over the XML form of an event (`edn.formats.event_xml`).

    expression   the tree of an expression
    parsing      text → tree; what is never taken (variables, unknown functions) is refused here
    writing      tree → text, in which nothing hangs on precedence: what is evaluated
    cost         a bound of the work that one evaluation can be, and the refusal of what may be too much
    covering     the range and equality conditions that an expression implies, for the summary
    evaluation   the verdict, by libxml2

The tree is ours so that cost and covers can be read off it; the verdict is libxml2's, of the text that is
written from the same tree, so that the two cannot disagree about what an expression says.
"""
