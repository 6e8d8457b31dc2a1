"""`perennial serve`: the server in the foreground, until a signal ends it."""

import asyncio
import errno
import gc
import logging
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import perennial
from perennial.cli.exits import die

if TYPE_CHECKING:
    from collections.abc import Callable

    from perennial.listening import Listener
    from perennial.settings import Settings
    from perennial.stand_in import StandIn

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 picks a free one. [default: 4437]")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Directory of the store. [default: ./data]")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with settings. [default: $PERENNIAL_CONFIG, or perennial.toml if it is here]"
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option(help="Allow other addresses than loopback without tokens.")
    ] = False,
) -> None:
    """Serve streams until told to stop (Ctrl-C or SIGTERM)."""
    from perennial.settings import SettingsError, find_config, load_settings

    given = {"host": host, "port": port, "data": data, "insecure": insecure or None}
    flags = {name: value for name, value in given.items() if value is not None}
    try:
        found = find_config(config)
        settings = load_settings(flags, config=found)
        _refuse_open_door(settings)
    except SettingsError as error:
        die(str(error))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if found is not None:
        logging.getLogger("perennial").info("settings from %s", found)
    _run(settings, lambda: load_settings(flags, config=find_config(config)))


def _run(settings: "Settings", again: "Callable[[], Settings]") -> None:
    """The address first, then the directory, then whoever asks is answered, and only then the store opens."""
    from perennial.listening import Listener
    from perennial.settings import SettingsError
    from perennial.stand_in import standing_in
    from perennial.store.claiming import claim
    from perennial.store.errors import StoreError

    try:
        listener = Listener(settings, again)
        try:
            listener.bind()
        except OSError as error:
            place = settings.unix_socket or f"{settings.host} port {settings.port}"
            hint = _other_places(error, settings)
            die(f"cannot listen on {place}: {error.strerror or error}", hint=hint)
        with (
            claim(Path(settings.data)),
            standing_in(listener.sockets, listener.limits, listener.tls) as stand_in,
        ):
            import uvloop  # now, since the fork has no use for it

            uvloop.run(_serve(settings, listener, stand_in))
    except (StoreError, SettingsError) as error:
        die(str(error))


def _other_places(error: OSError, settings: "Settings") -> str:
    """What to do about an address that cannot be had."""
    if not settings.unix_socket:
        in_use = error.errno == errno.EADDRINUSE
        return "--port or PERENNIAL_PORT chooses another, and 0 a free one" if in_use else ""
    if error.errno == errno.EADDRINUSE:
        is_socket = Path(settings.unix_socket).is_socket()
        return "another server listens there" if is_socket else "it exists, is no socket, and is left alone"
    if error.errno == errno.ENOENT:
        return "the directory must be there: the server makes the socket only"
    from perennial.cli.reaching import LONGEST_PATH_BYTES

    most = f"at most {LONGEST_PATH_BYTES} bytes"
    return f"unix_socket or PERENNIAL_UNIX_SOCKET is its path: {most}, where the server may write"


async def _serve(settings: "Settings", listener: "Listener", stand_in: "StandIn") -> None:
    from perennial.runtime import open_application

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nothing to reload yet, and no reason to end
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with open_application(settings) as application:
        await asyncio.to_thread(stand_in.leave)
        await listener.start(application)
        loop.add_signal_handler(signal.SIGHUP, listener.reload)
        _calm_the_collector()
        _announce(settings, listener.url)
        await stop.wait()
        typer.echo("stopping: live reads end, commits finish")
        await listener.stop()
    typer.echo("stopped")


def _calm_the_collector() -> None:
    """Requests in flight are many and live briefly; looking through them for cycles so often took 15% of the
    time under load. What start-up made stays for good and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _announce(settings: "Settings", url: str) -> None:
    typer.echo(f"perennial {perennial.__version__} listening on {url}")
    typer.echo(f"data in {Path(settings.data).resolve()}")
    if not settings.guarded:
        curl = "curl"
        if settings.unix_socket:
            curl = f"curl --unix-socket {shlex.quote(settings.unix_socket)}"
            url = "https://localhost" if settings.tls_cert else "http://localhost"
        typer.echo("try it:")
        typer.echo(f"  {curl} -X PUT  {url}/v1/stream/hello -H 'Content-Type: text/plain'")
        typer.echo(f"  {curl} -X POST {url}/v1/stream/hello -H 'Content-Type: text/plain' -d 'hello, stream'")
        typer.echo(f"  {curl} -N '{url}/v1/stream/hello?offset=-1&live=sse'")
    sys.stdout.flush()


def _refuse_open_door(settings: "Settings") -> None:
    from perennial.settings import SettingsError

    private = settings.host in LOOPBACK or bool(settings.unix_socket)
    if not private and not settings.guarded and not settings.insecure:
        raise SettingsError(
            f"refusing to listen on {settings.host} without tokens: anyone could write. "
            "Set PERENNIAL_AUTH_TOKENS (docs/security.md has more), or say --insecure if you mean it"
        )
