"""Filters in XPath 1.0, over the XML form of an event (`edn.formats.event_xml`).

    expression   the tree of an expression, and its text with explicit brackets
    parsing      text → tree; rejects unsupported expressions (variables, unknown functions)
    cost         an upper bound of the work per evaluation; rejects expressions that may take too long
    covering     the range and equality conditions that an expression implies, for rectangles
    evaluation   the exact evaluation, by libxml2

Cost and covers are computed from our own tree. libxml2 evaluates the text that is written from the same tree,
so both agree on the meaning of an expression.
"""
