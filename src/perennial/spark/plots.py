"""The pictures and the page of a report, drawn from plain values."""

import base64
import html
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perennial.spark.jobs.report import Usage

INK, QUIET = "#1f6f5c", "#d9e5e1"


def draw(usage: "Usage") -> bytes:
    """Four plots in one PNG."""
    # Loaded for a report only; it costs a second, and must not look for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8), layout="constrained")
    FigureCanvasAgg(figure)
    per_day, volume, sizes, hottest = figure.subplots(2, 2).flat
    days = [day for day, _, _ in usage.days]
    _bars(per_day, "messages per day", days, [messages for _, messages, _ in usage.days])
    _bars(volume, "megabytes per day", days, [size / 1e6 for _, _, size in usage.days])
    labels = [_size(1 << power) for power, _ in usage.sizes]
    _bars(sizes, "messages by size, up to", labels, [messages for _, messages in usage.sizes])
    names = [stream[:24] for stream, _, _ in usage.hottest][::-1]
    hottest.barh(range(len(names)), [messages for _, messages, _ in usage.hottest][::-1], color=INK)
    hottest.set_yticks(range(len(names)), names, fontsize=8)
    hottest.set_title("hottest streams, messages")
    figure.suptitle(f"bucket {usage.bucket}")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()


def write_page(folder: Path, usage: "Usage", picture: bytes) -> None:
    _write(folder / "report.png", picture)
    _write(folder / "index.html", page(usage, picture).encode())


def page(usage: "Usage", picture: bytes) -> str:
    """One file that needs no other."""
    facts = [
        ("streams", f"{usage.streams:,}"),
        ("messages", f"{usage.messages:,}"),
        ("bytes", f"{usage.bytes:,}"),
        ("bytes per message", f"{usage.bytes / max(1, usage.messages):,.0f}"),
    ]
    parts = [
        f"<h1>Usage of bucket <code>{html.escape(usage.bucket)}</code></h1>",
        _table(("", ""), facts),
        f'<img alt="plots" src="data:image/png;base64,{base64.b64encode(picture).decode()}">',
    ]
    if usage.percentiles:
        rows = [(name, *(f"{value:,.3g}" for value in values)) for name, *values in usage.percentiles]
        parts += ["<h2>Responses</h2>", _table(("", "50%", "90%", "99%"), rows)]
    parts += ["<h2>Days</h2>", _table(("day", "messages", "bytes"), usage.days)]
    parts += ["<h2>Hottest streams</h2>", _table(("stream", "messages", "bytes"), usage.hottest)]
    title = html.escape(f"Usage of bucket {usage.bucket}")
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "img{max-width:100%}table{border-collapse:collapse;margin:1rem 0}"
    f"td,th{{padding:.25rem .75rem;text-align:left;border-bottom:1px solid {QUIET}}}"
    "td:not(:first-child){text-align:right;font-variant-numeric:tabular-nums}"
)


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_text(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _bars(axes: Any, title: str, labels: Sequence[str], values: Sequence[float]) -> None:
    axes.bar(range(len(values)), values, color=INK)
    axes.set_title(title)
    step = max(1, len(labels) // 10)
    axes.set_xticks(range(0, len(labels), step), labels[::step], rotation=30, ha="right", fontsize=8)


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"


def _write(path: Path, data: bytes) -> None:
    """All of it or nothing: a reader of the old page never sees half a new one."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(data)
    os.replace(draft, path)
