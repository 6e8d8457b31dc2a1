"""What can go wrong in the pipeline, in sentences that say what to do about it."""


class PipelineError(Exception):
    """Base of all failures of the pipeline; the message is meant for the person who started it."""


class BadOption(PipelineError, ValueError):
    """An option that cannot be used."""


class Unreachable(PipelineError):
    """No answer from the server, for longer than was worth waiting."""

    def __init__(self, url: str, reason: str, waited_seconds: float = 0.0) -> None:
        waited = f" (tried for {waited_seconds:.0f} seconds)" if waited_seconds >= 1 else ""
        super().__init__(
            f"no answer from {url}{waited}: {reason}. Check that the server is running there, that the "
            "option 'url' is right, and that this machine may connect to it"
        )
        self.url = url
        self.reason = reason

    def __reduce__(self) -> tuple[type["Unreachable"], tuple[str, str]]:
        return type(self), (self.url, self.reason)


class Refused(PipelineError):
    """The server understood the request and said no."""

    def __init__(self, status: int, code: str, message: str, advice: str = "") -> None:
        super().__init__(f"{message} (HTTP {status} {code})" + (f". {advice}" if advice else ""))
        self.status = status
        self.code = code
        self.message = message
        self.advice = advice

    def __reduce__(self) -> tuple[type["Refused"], tuple[int, str, str, str]]:
        return type(self), (self.status, self.code, self.message, self.advice)


class DataLost(PipelineError):
    """Positions that were to be read are no longer there."""
