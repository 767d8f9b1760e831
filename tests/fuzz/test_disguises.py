"""One-time secrets and credentials in every disguise a chat lets through: what a reader sees, the desk sees."""

from __future__ import annotations

import string
import unicodedata

from hypothesis import assume, given
from hypothesis import strategies as st

from frontdesk.desk.inbox.intent import detect, head
from frontdesk.kernel.disguises import INVISIBLE as SKIPPED
from frontdesk.kernel.disguises import plain
from frontdesk.kernel.secret_shapes import SHAPES, find_secret_in_disguise, find_secret_shape, redact
from tests.fuzz.profile import bounded

BASE64URL = string.ascii_letters + string.digits + "-_"
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
PATTERNS = dict(SHAPES)
# A reader sees none of these; the list is spelt out here, not taken from the product.
INVISIBLE = [chr(code) for code in (0x00AD, 0x034F, 0x061C, 0x180E, 0x200B, 0x200C, 0x200D, 0x200E, 0x2060, 0x2063)]
INVISIBLE += [chr(code) for code in (0x202A, 0x202E, 0x2066, 0x2069, 0x3164, 0xFE0F, 0xFEFF, 0xFFA0, 0xE0020, 0xE01EF)]
MARKS = ["\u0301", "\u0308", "\u0323", "\u20dd", "\u1dc4", "\ufe20"]
UNSEEN = [*INVISIBLE, *MARKS]
BLANK = [" ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u2028", "\u3000", "\u205f", "\x0b", "\x85"]
MENTIONS = ["@_user_1", "@_user_42 ", "@_all "]

claims = st.text(BASE64URL, min_size=32, max_size=32).map("fdc_".__add__)
bindings = st.text(CROCKFORD, min_size=20, max_size=20).map("fdb_".__add__)
# Text around a secret that adds nothing to it: no letters that could begin another token of the same shape.
around = st.text("xyzXYZ 123,.!?，。你好\u3000\n<>&\"'", max_size=12)
leading = st.lists(st.sampled_from([*BLANK, *INVISIBLE, *MENTIONS]), max_size=8).map("".join)


def full_width(text: str, chosen: list[bool]) -> str:
    """Some characters in the wide form that a Chinese keyboard gives."""
    return "".join(
        chr(ord(char) + 0xFEE0) if wide and "!" <= char <= "~" else char
        for char, wide in zip(text, chosen, strict=True)
    )


@st.composite
def disguised(draw: st.DrawFn, text: str) -> str:
    """The same to a reader: invisible characters and marks upon letters anywhere in it, some of it full-width."""
    chosen = draw(st.lists(st.booleans(), min_size=len(text), max_size=len(text)))
    shown = full_width(text, chosen) if draw(st.booleans()) else text
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(shown)))
        shown = shown[:place] + draw(st.sampled_from(UNSEEN)) * draw(st.integers(1, 3)) + shown[place:]
    return shown


@given(data=st.data(), code=claims, before=around, after=around)
@bounded(80)
def test_a_claim_is_a_claim_in_any_disguise(data: st.DataObject, code: str, before: str, after: str) -> None:
    """A claim anywhere in a text, with invisible or full-width characters in it, is a claim, and its code is found."""
    found = detect(before + data.draw(disguised(code)) + after)
    assert (found.kind, found.code) == ("artifact_claim", code)
    assert code not in repr(found)


@given(data=st.data(), code=bindings, before=around, after=around, lower=st.booleans())
@bounded(80)
def test_a_binding_code_is_one_in_any_disguise(
    data: st.DataObject, code: str, before: str, after: str, lower: bool
) -> None:
    """A binding code is found in any letter case and disguise, wherever it stands."""
    found = detect(before + data.draw(disguised(code.lower() if lower else code)) + after)
    assert found.kind == "binding"
    assert str(found.code).upper() == code.upper()


@given(data=st.data(), word=st.sampled_from(["/claim", "领取", "/bind", "绑定"]), before=leading, after=around)
@bounded(80)
def test_a_command_is_one_behind_anything_unseen(data: st.DataObject, word: str, before: str, after: str) -> None:
    """Blanks, invisible characters and mentions before a command word, or within it, do not make it a reply."""
    shown = data.draw(disguised(word)).translate(dict.fromkeys(map(ord, MARKS)))
    assert detect(before + shown + after).kind != "reply"
    assert detect(before + shown.upper() + after).kind != "reply"


@given(data=st.data(), kind=st.sampled_from(sorted(PATTERNS)), before=around, after=around)
@bounded(80)
def test_a_credential_is_refused_in_any_disguise(data: st.DataObject, kind: str, before: str, after: str) -> None:
    """What has the shape of a credential to a reader is no ordinary reply, whatever stands between its letters."""
    secret = data.draw(st.from_regex(PATTERNS[kind], fullmatch=True))
    assume(secret.isascii() and secret.isprintable())
    shown = f"{before} {data.draw(disguised(secret))} {after}"
    assert detect(shown).kind != "reply"
    assert find_secret_in_disguise(shown) is not None  # the console's door asks this


@given(text=st.text(max_size=300))
@bounded(80)
def test_looking_is_total_and_changes_nothing(text: str) -> None:
    """Any text has a kind; looking again at what was looked at finds the same; an ordinary text keeps its words."""
    found = detect(text)
    assert found.kind in {"binding", "artifact_claim", "credential", "reply"}
    assert plain(plain(text)) == plain(text)
    assert unicodedata.normalize("NFKC", plain(text)) == plain(text)
    assert head(head(text)) == head(text)
    assert (found.code is None) or found.kind in {"binding", "artifact_claim"}


@given(
    words=st.lists(
        st.sampled_from(
            ["hello", "你好", "how", "is", "the", "claim", "bind", "领取", "fdc_", "pass", "sk-", "👩‍👧", "é"]
        ),
        min_size=1,
        max_size=12,
    )
)
@bounded(50)
def test_ordinary_words_are_ordinary(words: list[str]) -> None:
    """Words that only look like the beginning of something, behind another word, make no command and no credential."""
    assert detect("well " + " ".join(words)).kind == "reply"


@given(data=st.data(), kinds=st.lists(st.sampled_from(sorted(PATTERNS)), min_size=1, max_size=3), between=around)
@bounded(50)
def test_what_is_redacted_holds_no_credential(data: st.DataObject, kinds: list[str], between: str) -> None:
    """After redaction no shape is left, and redacting again changes nothing."""
    secrets = [data.draw(st.from_regex(PATTERNS[kind], fullmatch=True)) for kind in kinds]
    known = "planted-secret-0123"
    cleaned = redact(between.join([*secrets, known]), (known,))
    assert find_secret_shape(cleaned) is None
    assert known not in cleaned
    assert redact(cleaned) == cleaned


def test_the_detector_knows_what_unicode_calls_invisible() -> None:
    """Each character of this list is skipped; and none that has a width is."""
    for char in INVISIBLE:
        assert plain(f"a{char}b") == "ab", hex(ord(char))
    for char in "aé你あ👩0-_/":
        assert ord(char) not in SKIPPED
