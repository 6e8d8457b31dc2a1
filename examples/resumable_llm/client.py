"""Ask a model through the proxy, be cut off in the middle of the answer, and go on reading where you were.

python client.py ask "Why is the sky blue?" --cut-after 12
python client.py resume
"""

import argparse
import json
import os
import sys
from pathlib import Path

from perennial.client import ProxyClient, ProxyResponse, ResponseFailed

BOOKMARK = Path("bookmark.json")


def show(response: ProxyResponse, rest: bytes = b"", cut_after: int | None = None) -> None:
    """Print tokens as they come, and keep noting where we are: that is all it takes to resume."""
    shown = 0
    for chunk in response:
        *events, rest = (rest + chunk).split(b"\n\n")
        for event in events:
            data = json.loads(event.removeprefix(b"data: "))
            if data == "[DONE]":
                BOOKMARK.unlink(missing_ok=True)
                print()
                return
            print(data["token"], end=" ", flush=True)
            shown += 1
        keep(response, rest)
        if cut_after is not None and shown >= cut_after:
            print("\n[the power goes out]", flush=True)
            os._exit(1)


def keep(response: ProxyResponse, rest: bytes) -> None:
    """A bookmark: the stream, the response in it, how far we are, and the half event we have in hand."""
    # The URL is as good as a password for this stream: for our eyes only.
    half = BOOKMARK.with_suffix(".new")
    half.touch(mode=0o600)
    place = {
        "url": response.url,
        "id": response.id,
        "offset": response.offset,
        "rest": rest.decode("latin-1"),
    }
    half.write_text(json.dumps(place))
    half.replace(BOOKMARK)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--proxy", default="http://127.0.0.1:4437/v1/proxy")
    parser.add_argument("--model", default="http://127.0.0.1:8090/v1/answer")
    commands = parser.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("ask")
    ask.add_argument("prompt")
    ask.add_argument("--cut-after", type=int, metavar="TOKENS")
    commands.add_parser("resume")
    options = parser.parse_args()

    with ProxyClient(options.proxy, token=os.environ.get("PERENNIAL_TOKEN")) as proxy:
        if options.command == "ask":
            with proxy.stream("POST", options.model, json={"prompt": options.prompt}) as response:
                show(response, cut_after=options.cut_after)
        else:
            if not BOOKMARK.exists():
                sys.exit("there is nothing to resume: no answer was cut off here")
            place = json.loads(BOOKMARK.read_text())
            with proxy.resume(place["url"], place["id"], offset=place["offset"]) as response:
                show(response, place["rest"].encode("latin-1"))


if __name__ == "__main__":
    try:
        main()
    except ResponseFailed as failure:
        sys.exit(f"\n[the answer ends here: {failure}]")
