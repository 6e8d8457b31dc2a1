"""Where settings come from, what is refused, and that their table tells the truth."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perennial.asgi import create_app
from perennial.http.access.tokens import hash_token
from perennial.settings import QuotaSetting, Settings, SettingsError, checked, find_config, load_settings

ROOT = Path(__file__).parent.parent


def test_the_table_of_settings_is_up_to_date() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "settings-table"), "--check"]
    assert subprocess.run(script, check=False).returncode == 0, "run scripts/settings-table"


def test_the_table_names_every_setting() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    missing = [name for name in Settings.__struct_fields__ if f"| `{name}` |" not in page]
    assert not missing


def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(tmp_path: Path) -> None:
    config = tmp_path / "perennial.toml"
    config.write_text('host = "file"\nport = 1\nmax_chunk = 7\n')
    settings = load_settings({"host": "flag"}, {"PERENNIAL_HOST": "env", "PERENNIAL_PORT": "2"}, config)
    assert (settings.host, settings.port, settings.max_chunk, settings.max_body) == ("flag", 2, 7, 64 << 20)


def test_lists_are_separated_by_commas_in_variables() -> None:
    settings = load_settings({}, {"PERENNIAL_TRUSTED_PROXIES": " 10.0.0.0/8, unix,"})
    assert settings.trusted_proxies == ("10.0.0.0/8", "unix")


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("nonsense = 1", "nobody reads: nonsense"),
        ("port = 70000", "port"),
        ("max_body = 0", "max_body"),
        ("rate_bytes = -1", "rate_bytes"),
        ('tls_cert = "cert.pem"', "tls_cert and tls_key come together"),
        ('[[tokens]]\nname = "a"\nhash = "plain"\nscopes = ["read"]', "hash"),
        (f'[[tokens]]\nname = "a"\nhash = "{hash_token("x")}"\nscopes = ["everything"]', "scopes"),
        (f'[[tokens]]\nname = "a"\nhash = "{hash_token("x")}"\nscopes = []', "scopes"),
        (f'[[tokens]]\nname = "a"\nhash = "{hash_token("x")}"\nscopes = ["read"]\nbucket = "b"', "bucket"),
        (f'[[tokens]]\nname = "a"\nhash = "{hash_token("x")}"\nscopes = ["read"]\n' * 2, "the same name"),
        ("[quotas.agents]\nstreams = -1", "quotas"),
        ("port = ", "not valid TOML"),
    ],
)
def test_a_bad_setting_is_named(tmp_path: Path, config: str, complaint: str) -> None:
    path = tmp_path / "perennial.toml"
    path.write_text(config)
    with pytest.raises(SettingsError, match=complaint):
        load_settings({}, {}, path)


def test_a_bad_setting_is_told_with_where_it_came_from(tmp_path: Path) -> None:
    config = tmp_path / "perennial.toml"
    config.write_text('max_body = "much"')
    with pytest.raises(
        SettingsError, match=f"bad setting {config}: max_body: Expected a whole number, got text"
    ):
        load_settings({}, {}, config)
    with pytest.raises(SettingsError, match="bad setting PERENNIAL_PORT: Expected a whole number"):
        load_settings({}, {"PERENNIAL_PORT": "abc"})
    with pytest.raises(SettingsError, match="bad setting --port: Expected a whole number <= 65535"):
        load_settings({"port": 70000}, {"PERENNIAL_PORT": "80"})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"auth_tokens": "secret"}, "auth_tokens: Expected a list, got text"),
        ({"proxy_allow": "https://api.example.com/**"}, "proxy_allow: Expected a list, got text"),
        ({"max_body": "1000"}, "max_body: Expected a whole number, got text"),
        ({"max_body": -1}, "max_body: Expected a whole number >= 1"),
        ({"data": object()}, "expected str"),
    ],
)
def test_settings_made_in_code_are_held_to_the_same(given: dict[str, Any], complaint: str) -> None:
    """A text for a list would be taken letter by letter: six tokens with full access, one of them "s"."""
    with pytest.raises(SettingsError, match=complaint):
        create_app(Settings(**given))


def test_a_path_and_a_list_will_do_in_code() -> None:
    given: dict[str, Any] = {"data": Path("here"), "auth_tokens": ["secret"], "long_poll_timeout": 5}
    settings = checked(Settings(**given, quotas={"agents": QuotaSetting(streams=3)}))
    assert (settings.data, settings.auth_tokens, settings.long_poll_timeout) == ("here", ("secret",), 5.0)
    assert settings.quotas["agents"].streams == 3


def test_a_misspelt_variable_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    variables = {
        "PERENNIAL_AUTH_TOKEN": "secret",
        "PERENNIAL_PORT": "80",
        "PERENNIAL_URL": "http://x",
        "HOME": "/",
    }
    load_settings({}, variables)
    assert [record.getMessage() for record in caplog.records] == [
        "PERENNIAL_AUTH_TOKEN is not a setting, and is ignored"
    ]


def test_secrets_are_not_shown() -> None:
    shown = repr(Settings(auth_tokens=("s3cr3t",), jwt_secret="s3cr3t" * 6, proxy_secret=("s3cr3t",)))
    assert "s3cr3t" not in shown
    assert "port=4437" in shown


def test_the_file_is_the_one_given_or_named_or_the_one_that_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`perennial token create` and then `perennial serve`, without a flag, is a guarded server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERENNIAL_CONFIG", raising=False)
    assert find_config() is None
    (tmp_path / "perennial.toml").write_text("port = 1")
    assert find_config() == Path("perennial.toml")
    monkeypatch.setenv("PERENNIAL_CONFIG", "/etc/named.toml")
    assert find_config() == Path("/etc/named.toml")
    assert find_config(Path("given.toml")) == Path("given.toml")
