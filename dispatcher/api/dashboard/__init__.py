"""The dashboard at the dispatcher's `/`: a page that shows the network at work.

    sampling     one look at the counters a second, shared by all who watch, and their history
    projecting   what routes events, drawn on two attributes, at any precision
    door         the routes: the page and its files, the live stream, projections
    static/      the page: HTML, CSS and JavaScript modules as they are served

The page asks the same interface as everybody else; nothing here may change anything. Charts are Plotly's,
from the installed package, so that the page works without any other host.
"""
