"""What an identity may touch, decided from names alone."""

import pytest

from perennial.http.access.identity import ADMIN, ANYONE, MISSING, READ, UNKNOWN, WRITE, Identity
from perennial.http.access.tokens import Tokens, hash_token, new_token
from perennial.settings import TokenSetting


def test_a_full_identity_may_do_everything_everywhere() -> None:
    for identity in (Identity("service", full=True), ANYONE):
        assert identity.may(WRITE, "proxy", "x")
        assert identity.may_all(ADMIN, "default")
        assert identity.narrow(READ, "agents", "any") == "any"


def test_the_unknown_may_do_nothing() -> None:
    for identity in (MISSING, UNKNOWN):
        assert not identity.may(READ, "default", "x")
        assert not identity.may_all(READ, "default")
        assert identity.narrow(READ, "default", "") is None


def test_all_buckets_do_not_include_the_proxys() -> None:
    assert not Identity("a", [READ]).may(READ, "proxy", "x")
    assert Identity("a", [READ]).may(READ, "default", "x")
    assert Identity("a", [READ], ["proxy"]).may(READ, "proxy", "x")
    assert not Identity("a", [READ], []).may(READ, "default", "x"), "an empty list is no bucket"


@pytest.mark.parametrize(
    ("asked", "given"), [("", "a/"), ("a", "a/"), ("a/", "a/"), ("a/b", "a/b"), ("b", None), ("ab", None)]
)
def test_a_prefix_narrows_what_is_asked_for(asked: str, given: str | None) -> None:
    assert Identity("a", [READ], prefix="a/").narrow(READ, "default", asked) == given


def test_tokens_are_found_by_their_hash() -> None:
    token = new_token()
    setting = TokenSetting(name="one", hash=hash_token(token), scopes=("read",))
    tokens = Tokens(("service",), (setting,))
    found = tokens.find(token)
    assert found is not None
    assert (found.name, found.scopes) == ("token:one", frozenset({"read"}))
    assert tokens.find(token[:-1]) is None
    assert tokens.find(hash_token(token)) is None, "the hash itself opens nothing"
    service = tokens.find("service")
    assert service is not None
    assert service.full
    assert "service" not in service.name.removeprefix("service:")


def test_new_tokens_are_long_and_different() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43
