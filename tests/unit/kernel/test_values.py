"""Ids, instants, canonical JSON, digests, one-time secrets, back-off and failpoints."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from frontdesk.kernel import canonical, limits
from frontdesk.kernel.canonical import NotCanonical, bytes_digest, canonical_bytes, canonical_digest, joined_digest
from frontdesk.kernel.clock import DAY, HOUR, MINUTE, SECOND, ManualClock, SystemClock, from_rfc3339, to_rfc3339
from frontdesk.kernel.failpoints import POINTS, FailpointHit, Failpoints, parse_failpoints
from frontdesk.kernel.ids import PREFIXES, SeededEntropy, SystemEntropy, is_id, new_id, uuid7
from frontdesk.kernel.oncesecret import (
    binding_code_digest,
    claim_digest,
    new_binding_code,
    new_claim,
    new_token,
    same_secret,
    token_digest,
)
from frontdesk.kernel.retry import backoff_us

# ---------------------------------------------------------------------------------------------- ids and time

instants = st.integers(0, 4_102_444_800 * SECOND)


@given(instants, st.sampled_from(sorted(PREFIXES)), st.integers())
def test_an_id_is_36_characters_of_its_kind_and_carries_its_instant(now: int, prefix: str, seed: int) -> None:
    made = new_id(prefix, now, SeededEntropy(seed))
    assert len(made) == 36
    assert is_id(prefix, made)
    value = uuid7(now, SeededEntropy(seed))
    assert (value.version, value.variant) == (7, "specified in RFC 4122")
    assert made == f"{prefix}_{value.hex}"
    assert int(made[4:16], 16) == now // 1000


@given(instants, st.integers(1, DAY), st.integers())
def test_ids_sort_by_their_instants_to_the_microsecond(now: int, later: int, seed: int) -> None:
    entropy = SeededEntropy(seed)
    assert new_id("rcp", now, entropy) < new_id("rcp", now + later, entropy)


def test_prefixes_are_those_of_section_1_3_and_no_other_is_taken() -> None:
    listed = "usr wsp mbr ses tok prj wfl run evt ins bch bnd rcp cnv trn prp grt agr dlv art stl"
    assert set(listed.split()) == PREFIXES
    with pytest.raises(KeyError):
        new_id("xyz", 0, SystemEntropy())


@pytest.mark.parametrize(
    "text", ["", "rcp_", "rcp_" + "0" * 31, "rcp_" + "0" * 33, "rcp_" + "G" * 32, "RCP_" + "0" * 32]
)
def test_other_shapes_are_no_ids(text: str) -> None:
    assert not is_id("rcp", text)
    assert not is_id("dlv", "rcp_" + "0" * 32)


@given(instants)
def test_an_instant_survives_the_wire(instant: int) -> None:
    text = to_rfc3339(instant)
    assert text.endswith("Z")
    assert from_rfc3339(text) == instant


def test_instants_with_other_offsets_are_read_and_naive_ones_refused() -> None:
    assert from_rfc3339("2026-01-01T08:00:00+08:00") == 1_767_225_600 * SECOND
    with pytest.raises(ValueError):
        from_rfc3339("2026-01-01T00:00:00")


def test_a_manual_clock_advances_both_clocks_and_steps_one() -> None:
    clock = ManualClock(10)
    clock.advance(5)
    clock.step(-12)
    assert (clock.now_us(), clock.monotonic_us()) == (3, 5)
    with pytest.raises(ValueError):
        clock.advance(-1)
    system = SystemClock()
    assert abs(system.now_us() - datetime.now(UTC).timestamp() * SECOND) < MINUTE
    assert system.monotonic_us() <= system.monotonic_us()


# ---------------------------------------------------------------------------------------------- canonical JSON

scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text()
flat = st.dictionaries(st.text(), scalars, max_size=8)
nested = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(), each, max_size=4),
    max_leaves=12,
)


def reference(value: Any) -> bytes | None:
    try:
        return bytes(rfc8785.dumps(value))
    except (rfc8785.CanonicalizationError, UnicodeError):
        return None


def ours(value: Any) -> bytes | None:
    try:
        return canonical_bytes(value)
    except NotCanonical:
        return None


@given(flat)
def test_the_fast_path_gives_the_very_bytes_of_rfc_8785(value: dict[str, Any]) -> None:
    assert ours(value) == reference(value)


@given(nested)
def test_everything_else_goes_to_the_reference(value: Any) -> None:
    assert ours(value) == reference(value)


def test_the_fast_path_is_taken_for_flat_objects_with_ascii_names_alone() -> None:
    assert canonical._is_flat({"a": "é", "b": 1, "c": None, "d": True})
    for value in ({"é": 1}, {"a": 1.0}, {"a": []}, {"a": 2**53}, [], {1: 2}):
        assert not canonical._is_flat(value)


class Text(str):
    """A text of another type."""

    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        2**53,
        -(2**53),
        {"a": 2**53},
        "\ud800",
        {"a": "\ud800"},
        {"\ud800": 1},
        {1: 2},
        {"a": object()},
        b"bytes",
        {"a": {1, 2}},
    ],
)
def test_what_has_no_canonical_form_is_one_error(value: Any) -> None:
    with pytest.raises(NotCanonical):
        canonical_bytes(value)


def test_depth_beyond_the_stack_is_the_same_error() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotCanonical):
        canonical_bytes(value)


def test_names_sort_by_utf_16_units_and_text_stays_unescaped() -> None:
    assert canonical_bytes({"\U0001f600": 1, "\ufb33": 2}).decode() == '{"\U0001f600":1,"\ufb33":2}'
    assert canonical_bytes({"b": "好<>&\u2028", "a": '\n\x01"'}).decode() == '{"a":"\\n\\u0001\\"","b":"好<>&\u2028"}'
    assert canonical_digest({}) == bytes_digest(b"{}")


def test_joined_parts_are_separated_by_one_nul_and_may_hold_none() -> None:
    assert joined_digest("a", "b") == bytes_digest(b"a\x00b")
    assert joined_digest("ab", "") != joined_digest("a", "b")
    with pytest.raises(ValueError):
        joined_digest("a\x00b")


# ---------------------------------------------------------------------------------------------- one-time secrets


def test_check_values_v10_and_v11() -> None:
    """The digests of a claim and of a binding code in any letter case, as section 1.4 gives them."""
    assert claim_digest("fdc_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX") == (
        "8126f640161a901172f14c8d93d7626ad7efc2ba14721b8ea047f647610fbedb"
    )
    for code in ("fdb_0123456789ABCDEFGHJK", "FDB_0123456789abcdefghjk"):
        assert binding_code_digest(code) == "f38a51798f5ab3f6902fe0f7c0616df07584333897698ec7568258c7e1b079b9"


class Bytes:
    """Entropy that gives the bytes 0, 1, 2 …"""

    def token_bytes(self, count: int) -> bytes:
        return bytes(range(count))


def test_one_time_secrets_have_their_shape_and_spend_all_their_randomness() -> None:
    assert new_claim(Bytes()) == "fdc_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
    token, code = new_token("fdt_", SystemEntropy()), new_binding_code(SystemEntropy())
    assert (len(token), len(code)) == (47, 24)
    assert set(code[4:]) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
    assert new_token("fdt_", Bytes()) != new_token("fdt_", SeededEntropy(1))
    assert len({new_binding_code(SeededEntropy(seed)) for seed in range(50)}) == 50
    assert len(token_digest(token)) == 64
    assert token not in token_digest(token)


@given(st.text(), st.text())
def test_secrets_are_equal_exactly_where_their_texts_are_and_none_equals_an_empty_one(given_: str, kept: str) -> None:
    try:
        same = same_secret(given_, kept)
    except UnicodeEncodeError:
        return
    assert same is (given_ == kept and kept != "")


# ---------------------------------------------------------------------------------------------- back-off, failpoints


class Fixed:
    """Entropy whose every byte is the same."""

    def __init__(self, byte: int) -> None:
        self._byte = byte

    def token_bytes(self, count: int) -> bytes:
        return bytes([self._byte]) * count


def test_back_off_doubles_from_two_seconds_to_ten_minutes_give_or_take_a_fifth() -> None:
    """Base 2 s, factor 2, cap 10 min, jitter 20 % both ways, never outside, whatever the attempt."""
    chance = random.Random(7)
    entropies = [SeededEntropy(chance.randrange(2**32)) for _ in range(40)]
    plain = [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    for attempt, seconds in enumerate(plain, 1):
        waits = [backoff_us(attempt, each) for each in entropies]
        assert min(waits) >= seconds * SECOND * 80 // 100
        assert max(waits) <= seconds * SECOND * 120 // 100
        assert len(set(waits)) > 30
    assert backoff_us(1, Fixed(0)) == 2 * SECOND * 80 // 100
    for attempt in (0, -3, 1000, 10**9):
        assert 0 < backoff_us(attempt, Fixed(255)) <= limits.RETRY_CAP_US * 120 // 100
    assert (limits.RETRY_BASE_US, limits.RETRY_CAP_US) == (2 * SECOND, HOUR // 6)


def test_failpoints_are_the_steps_of_5_3_before_and_after() -> None:
    steps = "t0 t1 t1b t2 t3 t4 t5 t6 t7 t8 t9 tF".split()
    assert [f"{step}.{side}" for step in steps for side in ("before", "after")] == list(POINTS)


def test_a_failpoint_does_what_it_is_armed_with_and_nothing_unarmed() -> None:
    killed: list[str] = []
    passed: list[str] = []
    points = Failpoints(
        {"t7.after": "kill", "t1.before": "raise"}, kill=lambda: killed.append("x"), observer=passed.append
    )
    points.hit("t2.after")
    assert not killed
    with pytest.raises(FailpointHit):
        points.hit("t1.before")
    assert not killed
    with pytest.raises(FailpointHit):  # a kill that does not kill must not let the code go on
        points.hit("t7.after")
    assert killed == ["x"]
    assert passed == ["t2.after", "t1.before", "t7.after"]
    with pytest.raises(ValueError):
        Failpoints({"t99.after": "kill"})


@pytest.mark.parametrize(
    "text", ["t7", "t7.after", "t7.after=", "t7.after=stop", "t10.after=kill", "x", "t7.after=kill;"]
)
def test_a_failpoint_that_does_not_exist_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="unknown failpoint"):
        parse_failpoints(text)


def test_failpoints_are_read_from_a_list() -> None:
    assert parse_failpoints(" t7.after=kill, t1.before=raise,") == {"t7.after": "kill", "t1.before": "raise"}
    assert parse_failpoints("") == {}
