"""The page `/docs`: Swagger UI, from files of this package, so that it works without the Internet.

`static/` has swagger-ui-bundle.js and swagger-ui.css of npm's `swagger-ui-dist` 5.34.1 as they are, with
their licence (Apache-2.0) and notices; `tests/unit/dashboard/test_swagger.py` compares their digests.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Response
from starlette.responses import FileResponse

from dispatcher.auth.caller import Need, needs
from edn.errors import NotFound

_STATIC = Path(str(files("dispatcher.api.swagger") / "static"))
_TYPES = {".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}
#: files that the page uses, and the notices that its script names
_SERVED = {path.name: path for path in _STATIC.iterdir() if path.suffix in _TYPES}
_HEADERS = {
    # Own files only; Swagger UI sets inline styles and draws icons from data URLs.
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def routes() -> APIRouter:
    """Returns the routes of the page; they are not part of the document that it shows."""
    router = APIRouter(include_in_schema=False)

    @router.get("/docs")
    @needs(Need.PUBLIC)
    async def page() -> Response:
        return FileResponse(_STATIC / "index.html", media_type="text/html", headers=_HEADERS)

    @router.get("/docs/{file}")
    @needs(Need.PUBLIC)
    async def file(file: str) -> Response:
        path = _SERVED.get(file)
        if path is None:
            raise NotFound(f'file "{file[:80]}" of the documentation does not exist')
        caching = {"cache-control": "public, max-age=86400"}
        return FileResponse(path, media_type=_TYPES[path.suffix], headers={**_HEADERS, **caching})

    return router
