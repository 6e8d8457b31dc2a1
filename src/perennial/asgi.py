"""The server as an ASGI app: `uvicorn perennial.asgi:create_app --factory`, or mounted in another app."""

from perennial.http.asgi import AsgiApp
from perennial.runtime import open_application
from perennial.settings import Settings, checked, find_config, load_settings


def create_app(settings: Settings | None = None) -> AsgiApp:
    """Settings come from `PERENNIAL_*` variables and the TOML file unless given. One process per data
    directory."""
    chosen = load_settings(config=find_config()) if settings is None else checked(settings)
    return AsgiApp(lambda: open_application(chosen))
