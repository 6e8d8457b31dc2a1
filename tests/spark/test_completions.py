import gzip
import json
from typing import Any

from perennial.spark.completions import Completion, read_completion

SSE = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}


def sse(*events: Any) -> bytes:
    return b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)


def test_openai_chunks() -> None:
    body = sse(
        {"model": "gpt-x", "choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"model": "gpt-x", "choices": [{"delta": {"content": "Hel"}}]},
        {"model": "gpt-x", "choices": [{"delta": {"content": "lo"}}]},
        {"model": "gpt-x", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
    )
    assert read_completion(body + b"data: [DONE]\n\n", SSE) == Completion("gpt-x", "Hello", 7, 2)


def test_openai_responses() -> None:
    usage = {"input_tokens": 5, "output_tokens": 1}
    body = sse(
        {"type": "response.created", "response": {"model": "gpt-y"}},
        {"type": "response.output_text.delta", "delta": "Hi"},
        {"type": "response.completed", "response": {"model": "gpt-y", "usage": usage}},
    )
    assert read_completion(body, SSE) == Completion("gpt-y", "Hi", 5, 1)


def test_anthropic_events() -> None:
    body = sse(
        {
            "type": "message_start",
            "message": {"model": "claude-x", "usage": {"input_tokens": 9, "output_tokens": 1}},
        },
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Good "}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "day"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    )
    assert read_completion(body, SSE) == Completion("claude-x", "Good day", 9, 4)


def test_answers_in_one_piece_also_compressed() -> None:
    answer = {
        "type": "message",
        "model": "claude-x",
        "content": [{"type": "text", "text": "Yes"}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    packed = gzip.compress(json.dumps(answer).encode())
    assert read_completion(packed, {**JSON, "content-encoding": "gzip"}) == Completion(
        "claude-x", "Yes", 1, 1
    )


def test_anything_else_is_none() -> None:
    assert read_completion(b"\x00\xff", {}) is None
    assert read_completion(b'{"model": "a car"}', JSON) is None
    assert read_completion(b"data: 3\n\n", SSE) is None
