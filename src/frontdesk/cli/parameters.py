"""Options from models: one option per field, so that a field added to the wire is on the command line at once.

Secrets are never taken from the command's own text, which the shell's history and every process list would keep: they
come from a file (`@path`), from a variable (`env:NAME`) or from standard input.
"""

from __future__ import annotations

import enum
import json
import os
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

_SECRETS: Final = frozenset({"password", "app_secret", "encrypt_key", "verification_token"})


class Unusable(click.UsageError):
    """An option whose value can't be used; the value is not repeated."""


def options_of(model: type[BaseModel]) -> Iterator[click.Option]:
    """The options of a request or query model. What is missing is found later: `--body` may hold it."""
    for name, field in model.model_fields.items():
        yield from _options(name, field)


def missing_of(model: type[BaseModel], values: Mapping[str, Any]) -> list[str]:
    """Flags of required fields that `values` lacks."""
    return [_flag(name) for name, field in model.model_fields.items() if field.is_required() and name not in values]


def is_secret(name: str, field: FieldInfo) -> bool:
    """Whether the field's value must not be shown."""
    return name in _SECRETS or field.repr is False


def values_of(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    """The fields that were given, as JSON values. Raises `Unusable`."""
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        value = given.get(name)
        if is_secret(name, field):
            value = _secret(name, value, from_stdin=bool(given.get(f"{name}_stdin")))
        if value is None or value == ():
            continue
        if _shape(field.annotation) == "json":
            value = _json(name, value)
        elif isinstance(value, tuple):
            value = list(value)
        values[name] = value
    return values


def json_argument(name: str, text: str) -> Any:
    """JSON given as text or as `@file`. Raises `Unusable`."""
    return _json(name, text)


def _options(name: str, field: FieldInfo) -> Iterator[click.Option]:
    flag = _flag(name)
    said = _help(name, field)
    if is_secret(name, field):
        yield click.Option([flag, name], metavar="@FILE|env:NAME", help=said + " Never taken as plain text.")
        yield click.Option([f"{flag}-stdin", f"{name}_stdin"], is_flag=True, help=f"Read {flag} from standard input.")
        return
    shape = _shape(field.annotation)
    if shape == "bool":
        yield click.Option([f"{flag}/--no-{flag[2:]}", name], default=None, help=said)
    elif shape == "json":
        yield click.Option([flag, name], metavar="JSON|@FILE", help=said)
    elif shape == "list":
        item: click.ParamType[Any] = _choice(field.annotation) or click.STRING
        yield click.Option([flag, name], type=item, multiple=True, help=said + " Repeatable.")
    else:
        numbers: dict[str, click.ParamType[Any]] = {"int": click.INT, "float": click.FLOAT}
        kind: click.ParamType[Any] = _choice(field.annotation) or numbers.get(shape, click.STRING)
        yield click.Option([flag, name], type=kind, help=said)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _help(name: str, field: FieldInfo) -> str:
    text = field.description or name.replace("_", " ").capitalize()
    text = text.rstrip(".") + "."
    if name == "request_id":
        return text + " Made here where it is not given; give the printed one again to repeat a request safely."
    bounds = _bounds(field)
    if bounds:
        text += f" {bounds}."
    default = field.default
    if field.is_required():
        text += " Required."
    elif isinstance(default, bool | int | str):
        text += f" Default: {str(default).lower() if isinstance(default, bool) else default}."
    return text


def _bounds(field: FieldInfo) -> str:
    found: dict[str, Any] = {}
    for part in field.metadata:
        for bound in ("ge", "le", "max_length"):
            value = getattr(part, bound, None)
            if value is not None:
                found[bound] = value
    if "ge" in found and "le" in found:
        return f"{found['ge']} to {found['le']}"
    return f"At most {found['max_length']} characters" if "max_length" in found else ""


def _core(annotation: Any) -> Any:
    """The annotation without `Annotated` and without None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _core(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        rest = [argument for argument in get_args(annotation) if argument is not type(None)]
        return _core(rest[0]) if len(rest) == 1 else Any
    return annotation


def _shape(annotation: Any) -> str:
    core = _core(annotation)
    origin = get_origin(core) or core
    if origin is Literal:
        return "int" if all(isinstance(each, int) for each in get_args(core)) else "str"
    if origin in {list, tuple, set, frozenset}:
        inner = _shape(get_args(core)[0]) if get_args(core) else "json"
        return "list" if inner == "str" else "json"
    if isinstance(origin, type):
        for kind, shape in ((bool, "bool"), (int, "int"), (float, "float"), (str, "str")):
            if issubclass(origin, kind):
                return shape
    return "json"


def _choice(annotation: Any) -> click.Choice[str] | None:
    core = _core(annotation)
    if get_origin(core) in {list, tuple, set, frozenset}:
        core = _core(get_args(core)[0])
    if get_origin(core) is Literal and all(isinstance(each, str) for each in get_args(core)):
        return click.Choice(list(get_args(core)))
    if isinstance(core, type) and issubclass(core, enum.Enum):
        return click.Choice([str(member.value) for member in core])
    return None


def _json(name: str, text: str) -> Any:
    flag = _flag(name)
    try:
        return json.loads(_file(flag, text[1:]) if text.startswith("@") else text)
    except ValueError:
        raise Unusable(f"{flag} is not valid JSON.") from None


def _secret(name: str, given: str | None, *, from_stdin: bool) -> str | None:
    flag = _flag(name)
    if from_stdin:
        if given is not None:
            raise Unusable(f"{flag} and {flag}-stdin exclude each other.")
        try:
            return sys.stdin.readline().rstrip("\r\n")
        except UnicodeDecodeError:
            raise Unusable(f"{flag}: standard input is no UTF-8 text.") from None
    if given is None:
        return None
    if given.startswith("@"):
        return _file(flag, given[1:]).rstrip("\r\n")
    if given.startswith("env:"):
        value = os.environ.get(given[4:])
        if value is None:
            raise Unusable(f"{flag}: that variable is not set.")
        return value
    raise Unusable(f"{flag} takes @FILE or env:NAME, or use {flag}-stdin; plain text would stay in the history.")


def _file(flag: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise Unusable(f"{flag}: the file can't be read.") from None
