"""The `perennial` command."""

import asyncio
import gc
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
import uvloop

import perennial
from perennial.http.server import Server
from perennial.runtime import open_application
from perennial.settings import Settings, SettingsError, load_settings
from perennial.store.errors import StoreError

app = typer.Typer(
    help="Perennial: durable streams over HTTP.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def main() -> None:
    app()


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        typer.echo(f"perennial {perennial.__version__}")
        raise typer.Exit


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 picks a free one. [default: 4437]")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Directory of the store. [default: ./data]")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    insecure: Annotated[
        bool, typer.Option(help="Allow other addresses than loopback without tokens.")
    ] = False,
) -> None:
    """Serve streams until told to stop (Ctrl-C or SIGTERM)."""
    given = {"host": host, "port": port, "data": data, "insecure": insecure or None}
    flags = {name: value for name, value in given.items() if value is not None}
    try:
        settings = load_settings(flags, config=config)
        _refuse_open_door(settings)
    except SettingsError as error:
        _die(str(error))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        uvloop.run(_serve(settings))
    except (StoreError, SettingsError) as error:
        _die(str(error))
    except OSError as error:
        _die(f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}")


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with open_application(settings) as application:
        server = Server(application, settings.host, settings.port)
        await server.start()
        _calm_the_collector()
        _announce(settings, server.port)
        await stop.wait()
        typer.echo("stopping: live reads end, commits finish")
        await server.stop()
    typer.echo("stopped")


def _calm_the_collector() -> None:
    """Requests in flight are many and live briefly; looking through them for cycles so often took 15% of the
    time under load. What start-up made stays for good and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _announce(settings: Settings, port: int) -> None:
    url = f"http://{settings.host}:{port}"
    typer.echo(f"perennial {perennial.__version__} listening on {url}")
    typer.echo(f"data in {Path(settings.data).resolve()}")
    typer.echo("try it:")
    typer.echo(f"  curl -X PUT  {url}/v1/stream/hello -H 'Content-Type: text/plain'")
    typer.echo(f"  curl -X POST {url}/v1/stream/hello -H 'Content-Type: text/plain' -d 'hello, stream'")
    typer.echo(f"  curl -N '{url}/v1/stream/hello?offset=-1&live=sse'")
    sys.stdout.flush()


def _refuse_open_door(settings: Settings) -> None:
    if settings.host not in LOOPBACK and not settings.auth_tokens and not settings.insecure:
        raise SettingsError(
            f"refusing to listen on {settings.host} without tokens: anyone could write. "
            "Set PERENNIAL_AUTH_TOKENS, or say --insecure if that is what you want"
        )


def _die(message: str) -> NoReturn:
    typer.echo(f"perennial: {message}", err=True)
    raise typer.Exit(code=1)
