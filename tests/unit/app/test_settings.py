"""Settings: typed, bounded, three sources in order, and no unknown name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontdesk.app.durations import parse_duration
from frontdesk.app.settings import (
    RESERVED,
    SECRET_NAMES,
    Settings,
    SettingsError,
    data_folder,
    database_url,
    is_loopback,
    load_settings,
    public_url,
)
from frontdesk.kernel import limits
from frontdesk.kernel.clock import DAY, HOUR, MINUTE, SECOND

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "settings.md"

# name: (its default, texts that are taken, texts that are refused), all as an environment gives them
TABLE: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "database_url": ("", ("", "x.db", "sqlite:///x.db", "postgresql://h/d"), ("mysql://h/d", "http://x")),
    "object_store": ("", ("", "objects"), ()),
    "log_level": ("info", ("debug", "info", "warning", "error"), ("", "INFO", "trace")),
    "bind": ("127.0.0.1", ("127.0.0.1", "localhost", "::1", "127.9.9.9"), ("0.0.0.0", "::", "10.0.0.1", "example.org")),
    "port": (8080, ("0", "65535"), ("-1", "65536", "", "eighty", "80.5")),
    "tls_cert": ("", ("",), ("only-one.pem",)),
    "tls_key": ("", ("",), ("only-one.pem",)),
    "allowed_hosts": (("127.0.0.1", "localhost", "[::1]"), ("", "a", "a,b"), ()),
    "behind_proxy": ((), ("", "10.0.0.1", "10.0.0.1,10.0.1.0/24"), ("proxy.example.org", "10.0.0.300")),
    "public_url": ("", ("", "https://desk.example.org"), ()),
    "credential_keys": ("", ("", "anything"), ()),
    "bootstrap_token": ("", ("", "x" * 32), ("x" * 31, "x")),
    "metrics_token": ("", ("", "x"), ()),
    "simulator_token": ("", ("", "x"), ()),
    # Each alone: none of them means anything without an issuer, nor an issuer without who is to come.
    "oidc_issuer": ("", ("",), ("https://id.example.org", "http://id.example.org")),
    "oidc_audience": ("", ("",), ("frontdesk", "x" * 256)),
    "oidc_client_id": ("", ("",), ("frontdesk", "x" * 256)),
    "oidc_client_secret": ("", ("",), ("a secret", "x" * 4097)),
    "oidc_provision": (False, ("false",), ("true", "", "perhaps")),
    "reply_enabled": (False, ("true", "false", "1", "0"), ("", "2", "perhaps")),
    "artifact_enabled": (False, ("true", "false"), ("", "perhaps")),
    "failure_notices": (True, ("true", "false"), ("", "perhaps")),
    "unaddressed_messages": ("only_grant", ("only_grant", "refuse"), ("", "all")),
    "oversize_answer": ("file", ("file", "refuse"), ("", "cut")),
    "lease": (30 * SECOND, ("25001ms", "26s", "10m"), ("25s", "24999ms", "600001ms", "11m", "0s", "30", "30 s")),
    "shutdown_grace": (25 * SECOND, ("0s", "15m"), ("900001ms", "16m", "-1s", "25")),
    "worker_receipts": (8, ("1", "64"), ("0", "65", "-1", "", "many")),
    "delivery_age_max": (4 * HOUR, ("1ms", "7d", "168h"), ("0s", "604800001ms", "8d", "4")),
    "retention_days": (30, ("1", "3650"), ("0", "3651", "30d")),
    "feishu_domain": (
        "https://open.feishu.cn",
        ("https://open.larksuite.com", "http://127.0.0.1:9", "http://localhost:9", "http://[::1]:9"),
        (
            "",
            "http://open.feishu.cn",
            "https://x/",
            "https://x/path",
            "https://u@x",
            "ftp://x",
            "https://x:0",
            "https://x:99999",
            "x",
        ),
    ),
    "outbound_proxy": ("", ("", "http://proxy:3128"), ("https://proxy:3128", "socks5://proxy", "proxy:3128")),
    "loopback_targets": (
        ("127.0.0.0/8", "::1", "localhost"),
        ("", "localhost", "peer.internal,10.20.0.0/16,[::1],fd00::/32", ",".join(f"10.0.0.{n}" for n in range(64))),
        ("0.0.0.0/0", "10.0.0.1/8", "http://peer", "peer:80", "*.peer", ",".join(f"10.0.0.{n}" for n in range(65))),
    ),
    "runner": ("demo", ("demo",), ()),
}


def load(folder: Path, **environment: str) -> Settings:
    """Settings of a folder under `FRONTDESK_<name>` variables."""
    return load_settings(folder, {f"FRONTDESK_{name.upper()}": value for name, value in environment.items()})


def plain(value: Any) -> Any:
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value


def test_every_setting_stands_in_the_table_of_this_test() -> None:
    assert set(TABLE) == set(Settings.model_fields)


@pytest.mark.parametrize("name", TABLE)
def test_a_setting_takes_its_bounds_and_refuses_one_beyond(name: str, tmp_path: Path) -> None:
    default, taken, refused = TABLE[name]
    assert plain(getattr(load(tmp_path), name)) == default
    for text in taken:
        load(tmp_path, **{name: text})
    for text in refused:
        with pytest.raises(SettingsError) as caught:
            load(tmp_path, **{name: text})
        assert name in str(caught.value)
        if len(text) > 3:
            assert f" {text}" not in str(caught.value)


@pytest.mark.spec("DESK-324")
def test_every_setting_is_documented_typed_and_bounded_and_no_other_name_is_taken(tmp_path: Path) -> None:
    """Each setting is documented and obeys its bounds; durations have one notation; no name is a constant's."""
    for name in TABLE:
        test_a_setting_takes_its_bounds_and_refuses_one_beyond(name, tmp_path)
    constants = {name.lower() for name in vars(limits) if name.isupper()}
    spellings = constants | {re.sub("_(us|bytes|chars|max|seconds)$", "", name) for name in constants}
    for name in sorted(spellings | {"unknown", "lease_ms", "a__b"}):
        assert name not in TABLE
        with pytest.raises(SettingsError, match=f"unknown setting '{name}'"):
            load(tmp_path, **{name: "1s"})
        (tmp_path / "frontdesk.toml").write_text(f'{name} = "1s"\n', encoding="utf-8")
        with pytest.raises(SettingsError, match=f"unknown setting '{name}'"):
            load(tmp_path)
        (tmp_path / "frontdesk.toml").unlink()
    for text in ("1S", "1 s", "1.5s", "+1s", "01s", "1", "1w", "PT1S", "s", "", "1s1s", "1,0s", "١s"):
        with pytest.raises(SettingsError):
            load(tmp_path, shutdown_grace=text)
    if not REFERENCE.exists():
        pytest.skip("docs/reference/settings.md is not written yet")
    page = REFERENCE.read_text(encoding="utf-8")
    missing = [name for name in TABLE if not re.search(rf"`{name}`", page)]
    assert not missing, f"docs/reference/settings.md does not name {missing}"


@given(st.integers(0, 999_999_999), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_durations_read_as_whole_numbers_of_one_unit(number: int, unit: str) -> None:
    size = {"ms": 1000, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}[unit]
    assert parse_duration(f"{number}{unit}") == number * size


@given(st.text(max_size=6))
def test_anything_else_is_no_duration(text: str) -> None:
    if re.fullmatch(r"(0|[1-9][0-9]*)(ms|s|m|h|d)", text, re.ASCII):
        return
    with pytest.raises(ValueError):
        parse_duration(text)


@pytest.mark.parametrize("value", [30, 30.0, None, True, ["30s"]])
def test_a_bare_number_is_no_duration(value: Any) -> None:
    with pytest.raises(ValueError):
        parse_duration(value)


# ---------------------------------------------------------------------------------------------- sources


def test_the_environment_stands_above_secrets_above_the_file_even_when_empty(tmp_path: Path) -> None:
    (tmp_path / "frontdesk.toml").write_text('port = 1\npublic_url = "http://file"\nlease = "40s"\n', encoding="utf-8")
    (tmp_path / "secrets.env").write_text("# made\n\nFRONTDESK_CREDENTIAL_KEYS=abc=\n", encoding="utf-8")
    found = load(tmp_path)
    assert (found.port, found.public_url, found.lease) == (1, "http://file", 40 * SECOND)
    assert found.credential_keys.get_secret_value() == "abc="
    found = load(tmp_path, port="2", public_url="", credential_keys="")
    assert (found.port, found.public_url) == (2, "")
    assert found.credential_keys.get_secret_value() == ""


def test_reserved_names_are_no_settings_and_refuse_nothing(tmp_path: Path) -> None:
    reserved = {"url", "token", "failpoints", "employee_data", "enable_test_cleanup"}
    assert reserved <= RESERVED
    load(tmp_path, **dict.fromkeys(sorted(RESERVED), "x"), test_anything="y")
    load_settings(tmp_path, {"PATH": "x", "frontdesk_port": "x", "XFRONTDESK_PORT": "x"})


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("frontdesk.toml", "port = [", "frontdesk.toml cannot be read as TOML"),
        ("frontdesk.toml", "[reply]\nenabled = true", "unknown setting 'reply'"),
        ("frontdesk.toml", "lease = 30", "lease"),
        ("frontdesk.toml", 'credential_keys = "x"', "credential_keys belongs in secrets.env"),
        ("secrets.env", "FRONTDESK_PORT=1", "holds a line that is none of its names"),
        ("secrets.env", "CREDENTIAL_KEYS=1", "holds a line that is none of its names"),
        ("secrets.env", "FRONTDESK_CREDENTIAL_KEYS", "holds a line that is none of its names"),
    ],
)
def test_a_file_that_is_wrong_is_named_and_its_values_are_not(file: str, text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=re.escape(says)):
        load(tmp_path)


def test_files_that_are_no_text_are_one_sentence(tmp_path: Path) -> None:
    for name in ("frontdesk.toml", "secrets.env"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00")
        with pytest.raises(SettingsError, match=f"{name} cannot be read"):
            load(tmp_path)
        (tmp_path / name).unlink()
        (tmp_path / name).mkdir()
        with pytest.raises(SettingsError, match=f"{name} cannot be read"):
            load(tmp_path)
        (tmp_path / name).rmdir()


def test_no_secret_shows_in_settings_or_in_a_refusal(tmp_path: Path) -> None:
    marker = "marker-4711"
    for name in (*SECRET_NAMES, "database_url", "outbound_proxy"):
        try:
            shown = repr(load(tmp_path, **{name: f"http://user:{marker}@host:x"}))
        except SettingsError as error:
            shown = str(error)
        assert marker not in shown, name


def test_places_are_derived_where_no_setting_names_them(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert database_url(found, tmp_path) == str(tmp_path / "frontdesk.db")
    assert public_url(found) == "http://127.0.0.1:8080"
    assert public_url(found, 99) == "http://127.0.0.1:99"
    assert public_url(load(tmp_path, public_url="https://desk/")) == "https://desk"
    assert public_url(load(tmp_path, tls_cert="c", tls_key="k", bind="10.0.0.1")) == "https://10.0.0.1:8080"
    assert data_folder(None, {}) == Path("frontdesk-data")
    assert data_folder(None, {"FRONTDESK_DATA": "/x"}) == Path("/x")
    assert data_folder("/y", {"FRONTDESK_DATA": "/x"}) == Path("/y")
    assert [is_loopback(host) for host in ("localhost", "[::1]", "127.1.2.3", "0.0.0.0", "localhost.evil")] == [
        True, True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "issuer",
    [
        "https://id.example.org",
        "https://id.example.org/",
        "https://id.example.org:8443/realms/desk",
        "http://127.0.0.1:9",
        "http://[::1]:9/x",
        "http://localhost:9",
        "https://" + "x" * 240,
    ],
)
def test_an_issuer_and_who_comes_from_it(issuer: str, tmp_path: Path) -> None:
    for more in (
        {"oidc_audience": "frontdesk"},
        {"oidc_client_id": "desk", "oidc_client_secret": "s"},
        {"oidc_audience": "frontdesk", "oidc_provision": "true"},
    ):
        assert load(tmp_path, oidc_issuer=issuer, **more).oidc_issuer == issuer


@pytest.mark.parametrize(
    "issuer",
    [
        "http://id.example.org",
        "http://localhost.example.org",
        "https://id.example.org?tenant=1",
        "https://id.example.org/#x",
        "https://user@id.example.org",
        "https://id.example.org:0",
        "https://id.example.org:",
        "https:// id.example.org",
        "ftp://id.example.org",
        "id.example.org",
        "https://é.example.org",
        "https://" + "x" * 250,
    ],
)
def test_what_is_no_issuer(issuer: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="oidc_issuer must be") as caught:
        load(tmp_path, oidc_issuer=issuer, oidc_audience="frontdesk")
    assert issuer not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"oidc_issuer": "https://id.example.org"}, "oidc_issuer needs"),
        ({"oidc_issuer": "https://x", "oidc_audience": "a", "oidc_client_secret": "s"}, "needs oidc_client_id"),
        ({"oidc_provision": "true"}, "oidc_provision needs oidc_issuer"),
    ],
)
def test_half_an_oidc_configuration_refuses_to_start(given: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=said):
        load(tmp_path, **given)


def test_the_client_secret_is_no_line_of_the_toml_file(tmp_path: Path) -> None:
    (tmp_path / "frontdesk.toml").write_text('oidc_client_secret = "s"\n')
    with pytest.raises(SettingsError, match=r"oidc_client_secret belongs in secrets\.env"):
        load(tmp_path)
