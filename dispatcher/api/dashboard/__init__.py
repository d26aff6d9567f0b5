"""The dashboard at the dispatcher's `/`: a page that shows the network at work.

    door         the routes: the page and its files, the live stream, projections
    static/      the page: HTML, CSS and JavaScript modules as they are served

`observe.sampler` reads the counters once per second for all viewers; `observe.projection` draws the routing
table on two attributes, at any precision.

The page asks the same interface as everybody else; nothing here may change anything. Charts are Plotly's,
from the installed package, so that the page works without any other host.
"""
