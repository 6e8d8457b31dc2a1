"""Why a server cannot be reached, and what the person could do about it."""

import os
import ssl
from http.client import BadStatusLine
from pathlib import Path
from typing import Final

from perennial.cli.exits import Code, Trouble
from perennial.client.address import Address

LONGEST_PATH_BYTES: Final = 107  # of Linux; nobody has more


def unreachable(address: Address, error: Exception, elsewhere: str = "") -> Trouble:
    """`elsewhere` is what to try if the server is not there at all."""
    cause = error.__cause__ or error
    hint = _about_tls(address, cause) or (_about_socket(address.socket, cause) if address.socket else "")
    if not hint:
        hint = f"is a server running at {address}? {elsewhere}".rstrip()
    return Trouble(Code.UNREACHABLE, str(error), hint)


def _about_tls(address: Address, cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return "SSL_CERT_FILE names the file of certificates to trust; one must be for this host"
    if isinstance(cause, ssl.SSLError):
        return "does the server speak TLS? If not, its URL begins with http://"
    if not isinstance(cause, BadStatusLine) or address.url.startswith("https://"):
        return ""
    if address.socket:
        return "was the server stopped just now, or has it TLS? Over a socket this command speaks plain HTTP"
    return "was the server stopped just now, or has it TLS? Then its URL begins with https://"


def _about_socket(path: str, cause: BaseException) -> str:
    if isinstance(cause, PermissionError):
        return f"whoever may write to {path} and enter its directory may connect; the server's user can"
    if isinstance(cause, NotADirectoryError):
        return "what should be a directory of that path is a file"
    if isinstance(cause, ConnectionRefusedError):
        if not Path(path).is_socket():
            return f"{path} is a {'directory' if Path(path).is_dir() else 'file'}, not a socket"
        return "nobody listens there: a server that was killed left it behind. Start the server again"
    if len(os.fsencode(path)) > LONGEST_PATH_BYTES:
        most = f"a socket's path has at most {LONGEST_PATH_BYTES} bytes"
        return f"{most}; from within its directory, unix:NAME is enough"
    if isinstance(cause, FileNotFoundError) and not Path(path).is_absolute():
        return f"is a server running there? The path begins in this directory, {Path.cwd()}"
    return ""
