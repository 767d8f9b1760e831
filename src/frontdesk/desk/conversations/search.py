"""Searching the briefing's notes: words for alphabetic text, character pairs for Chinese. Pure and repeatable."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from frontdesk.desk.conversations.runner import EXCERPT_CHARS_MAX, Briefing, BriefingNote, Hit, ToolSpec

_HAN: Final = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORDS: Final = re.compile(rf"[{_HAN}]+|[^\W_{_HAN}]+(?:['’][^\W_{_HAN}]+)?")
_IS_HAN: Final = re.compile(rf"[{_HAN}]")
_MARKUP: Final = re.compile(r"^\s{0,3}(?:#{1,6}\s+|[-*+]\s+|>\s?)", re.MULTILINE)
_TITLE_WEIGHT: Final = 3.0
_SATURATION: Final = 1.2  # the k1 of BM25: a word said ten times is not ten times the evidence

_STOP_WORDS: Final = frozenset(
    """a about again all also am an and any are as at be been but by can could did do does for from get go had has have
    he her here him his how i i'm if in into is it it's its just let like me more my no not now of off ok okay on one or
    our out please she so some still than that the their them then there these they this those to too up us very was we
    were what what's when where which who whom why will with would yes you your""".split()
)
# Pairs that carry grammar and no subject; without them "什么是…" would find every note.
_STOP_PAIRS: Final = frozenset(
    "什么 么是 是什 怎么 么样 为什 可以 以吗 你们 我们 他们 这个 那个 一个 现在 在吗 还在 是否 请问".split()
)


def terms_of(text: str) -> list[str]:
    """The searchable terms of a text in order: stemmed words without grammatical ones, and Chinese character pairs."""
    terms: list[str] = []
    for match in _WORDS.finditer(unicodedata.normalize("NFKC", text).casefold()):
        word = match.group()
        if _IS_HAN.match(word):
            pairs = [word[place : place + 2] for place in range(len(word) - 1)] or [word]
            terms += [pair for pair in pairs if pair not in _STOP_PAIRS]
        elif word not in _STOP_WORDS:
            terms.append(_stem(word))
    return terms


def _stem(word: str) -> str:
    for ending in ("'s", "’s", "ings", "ing", "ers", "er", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word


def search_notes(notes: Sequence[BriefingNote], query: str, limit: int) -> tuple[Hit, ...]:
    """At most `limit` notes that share a term with the query, best first; ties keep the order of the notes."""
    wanted = set(terms_of(query))
    if not wanted:
        return ()
    counted = [(note, _weights(note)) for note in notes]
    rarity = {
        term: math.log(1 + len(counted) / found)
        for term in wanted
        if (found := sum(term in weights for _, weights in counted))
    }
    scored = [(_score(weights, rarity), place, note) for place, (note, weights) in enumerate(counted)]
    best = sorted((entry for entry in scored if entry[0] > 0), key=lambda entry: (-entry[0], entry[1]))
    return tuple(
        Hit(note.title, excerpt(note.text, wanted), note.source, note.revision) for _, _, note in best[: max(0, limit)]
    )


def _weights(note: BriefingNote) -> dict[str, float]:
    weights: Counter[str] = Counter(terms_of(note.text))
    titles: Counter[str] = Counter(terms_of(note.title))
    return {term: weights[term] + _TITLE_WEIGHT * titles[term] for term in weights | titles}


def _score(weights: Mapping[str, float], rarity: Mapping[str, float]) -> float:
    # Summed in sorted order: a set's order differs between processes, and with it the last bit of a sum of floats.
    return sum(
        rarity[term] * weights[term] * (_SATURATION + 1) / (weights[term] + _SATURATION)
        for term in sorted(rarity)
        if term in weights
    )


def excerpt(text: str, wanted: Iterable[str]) -> str:
    """At most 300 characters, from the beginning of the first paragraph that holds most of the wanted terms."""
    terms = set(wanted)
    paragraphs = [_flat(part) for part in re.split(r"\n\s*\n", text)]
    bodies = [part for part in paragraphs if part]
    if not bodies:
        return ""
    best = max(range(len(bodies)), key=lambda place: (len(terms.intersection(terms_of(bodies[place]))), -place))
    return _cut(bodies[best])


def _flat(paragraph: str) -> str:
    return " ".join(_MARKUP.sub("", paragraph).split())


def _cut(text: str) -> str:
    if len(text) <= EXCERPT_CHARS_MAX:
        return text
    head = text[: EXCERPT_CHARS_MAX - 1]
    space = head.rfind(" ")
    if space > EXCERPT_CHARS_MAX // 2:
        head = head[:space]
    return head.rstrip() + "…"


class BriefingToolbox:
    """The toolbox of a turn without tools: search over what its briefing holds, and nothing else."""

    tools: tuple[ToolSpec, ...] = ()

    def __init__(self, briefing: Briefing) -> None:
        self._notes = briefing.notes

    async def search(self, query: str, limit: int) -> tuple[Hit, ...]:
        """See `Toolbox.search`."""
        return search_notes(self._notes, query, limit)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002 - nothing is looked at
        """See `Toolbox.call`: the list is empty, so every name is unknown."""
        return "unknown tool"
