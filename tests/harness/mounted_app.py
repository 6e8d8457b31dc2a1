"""Another application that has Perennial below `/a%20house/streams`; run by uvicorn."""

from perennial.asgi import create_app as create_perennial
from perennial.http.asgi import AsgiApp, Receive, Scope, Send

PLACE = "/a house/streams"


class House:
    def __init__(self, below: AsgiApp) -> None:
        self._below = below

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(f"{PLACE}/"):
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"nobody lives here"})
        else:
            await self._below({**scope, "root_path": PLACE}, receive, send)


def create_app() -> House:
    return House(create_perennial())
