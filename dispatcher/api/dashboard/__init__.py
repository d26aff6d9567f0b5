"""The dashboard at the dispatcher's `/`.

    pages        routes: the page and its files, the live stream, projections
    static/      the page: HTML, CSS and JavaScript modules, served unchanged

`observe.sampler` reads the counters once per second for all viewers; `observe.projection` projects the
routing table on two attributes, at any precision. Changes go through the public REST routes. Plotly is served
from the installed package, so that the page needs no other host.
"""
