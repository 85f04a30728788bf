"""What Discord refuses in a message or a command, as its documents say: unknown fields, and everything over a limit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

V2 = 1 << 15
EPHEMERAL = 1 << 6
ACTION_ROW, BUTTON, SELECT, TEXT, SEPARATOR, CONTAINER, GALLERY = 1, 2, 3, 10, 14, 17, 12
FIELDS = {
    ACTION_ROW: {"type", "id", "components"},
    BUTTON: {"type", "id", "style", "label", "emoji", "custom_id", "url", "disabled"},
    SELECT: {"type", "id", "custom_id", "options", "placeholder", "min_values", "max_values", "disabled", "required"},
    TEXT: {"type", "id", "content"},
    SEPARATOR: {"type", "id", "divider", "spacing"},
    CONTAINER: {"type", "id", "components", "accent_color", "spoiler"},
    GALLERY: {"type", "id", "items"},
}
INSIDE = {CONTAINER: {ACTION_ROW, TEXT, SEPARATOR, GALLERY}, ACTION_ROW: {BUTTON, SELECT}}
ON_TOP = {CONTAINER, ACTION_ROW, TEXT, SEPARATOR, GALLERY}
MESSAGE = {
    "content", "flags", "components", "embeds", "allowed_mentions", "attachments", "nonce", "enforce_nonce", "tts",
    "sticker_ids", "message_reference", "poll",
}  # fmt: skip
COMMAND = {
    "name", "description", "type", "options", "nsfw", "default_member_permissions", "dm_permission", "contexts",
    "integration_types", "name_localizations", "description_localizations",
}  # fmt: skip
OPTION = {
    "name", "description", "type", "required", "options", "choices", "autocomplete", "min_value", "max_value",
    "min_length", "max_length", "channel_types", "name_localizations", "description_localizations",
}  # fmt: skip
NAME = re.compile(r"[-_'a-z0-9]{1,32}")
SUB_COMMAND, SUB_GROUP = 1, 2


class Refusal(Exception):
    """400 with Discord's shape of an answer."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.body = {
            "code": 50035,
            "message": "Invalid Form Body",
            "errors": {where: {"_errors": [{"code": "BAD", "message": why}]}},
        }


def message(sent: Mapping[str, Any], *, files: Sequence[str] = ()) -> None:
    """Refusal unless Discord would take this as a message."""
    _known("message", sent, MESSAGE)
    flags = sent.get("flags") or 0
    content, components = sent.get("content") or "", sent.get("components") or []
    if len(content) > 2000:
        raise Refusal("content", "over 2000")
    if flags & V2:
        for name in ("content", "embeds", "poll", "sticker_ids"):
            if sent.get(name):
                raise Refusal(name, "can't be used with IS_COMPONENTS_V2")
        if not components:
            raise Refusal("components", "are needed")
    elif not (content or components or sent.get("embeds") or files):
        raise Refusal("content", "the message is empty")
    _attached(sent, files)
    if sent.get("nonce") is not None and len(str(sent["nonce"])) > 25:
        raise Refusal("nonce", "over 25")
    every = list(walked(components))
    if len(every) > 40:
        raise Refusal("components", f"{len(every)} are over 40")
    if sum(len(one.get("content", "")) for one in every) > 4000:
        raise Refusal("components", "over 4000 characters")
    ids = [one["custom_id"] for one in every if "custom_id" in one]
    if len(ids) != len(set(ids)):
        raise Refusal("components", "a custom id is there twice")
    for one in components:
        if one.get("type") not in (ON_TOP if flags & V2 else {ACTION_ROW}):
            raise Refusal("components", f"type {one.get('type')} can't be on top")
        _component(one)


def _attached(sent: Mapping[str, Any], files: Sequence[str]) -> None:
    if len(files) > 10:
        raise Refusal("files", "over 10")
    named = {int(one["id"]): one for one in sent.get("attachments") or [] if "filename" in one}
    for number, one in named.items():
        _known("attachment", one, {"id", "filename", "description"})
        if not 0 <= number < len(files) or one["filename"] != files[number]:
            raise Refusal("attachments", f"there is no file {number} called {one['filename']}")
        if len(one.get("description") or "") > 1024:
            raise Refusal("attachments", "description over 1024")
    for item in [item for one in walked(sent.get("components") or []) for item in one.get("items", [])]:
        scheme, _, name = str(item.get("media", {}).get("url")).partition("://")
        if scheme == "attachment" and name not in files:
            raise Refusal("items", f"no file is called {name}")


def _component(one: Mapping[str, Any]) -> None:
    kind = one.get("type")
    if kind not in FIELDS:
        raise Refusal("type", f"there is no component {kind}")
    _known(f"component {kind}", one, FIELDS[kind])
    inner = one.get("components", [])
    if kind == ACTION_ROW and any(child.get("type") == SELECT for child in inner) and len(inner) > 1:
        raise Refusal("components", "a select menu has its row to itself")
    if kind in INSIDE:
        if not 1 <= len(inner) <= (5 if kind == ACTION_ROW else 40):
            raise Refusal("components", f"{len(inner)} in one {kind}")
        for child in inner:
            if child.get("type") not in INSIDE[kind]:
                raise Refusal("components", f"{child.get('type')} can't be in {kind}")
            _component(child)
    if kind == TEXT and not 1 <= len(one.get("content", "")) <= 4000:
        raise Refusal("content", "1 to 4000 characters")
    if kind == BUTTON:
        if one.get("style") not in (1, 2, 3, 4, 5) or not (one.get("label") or one.get("emoji")):
            raise Refusal("style", "a button has a style and a label")
        if len(one.get("label", "")) > 80 or not 1 <= len(one.get("custom_id") or one.get("url") or "") <= 100:
            raise Refusal("custom_id", "label at most 80, custom id 1 to 100")
    if kind == SELECT:
        _select(one)
    if kind == GALLERY:
        if not 1 <= len(one.get("items") or []) <= 10:
            raise Refusal("items", "1 to 10")
        for item in one["items"]:
            _known("item", item, {"media", "description", "spoiler"})
            _known("media", item.get("media") or {}, {"url"})
            if not re.match(r"(attachment|https?)://.", str((item.get("media") or {}).get("url"))):
                raise Refusal("url", "no scheme that is known")
            if len(item.get("description") or "") > 1024:
                raise Refusal("description", "over 1024")
    if kind == CONTAINER and not 0 <= (one.get("accent_color") or 0) <= 0xFFFFFF:
        raise Refusal("accent_color", "is no colour")


def _select(one: Mapping[str, Any]) -> None:
    options, least, most = one.get("options") or [], one.get("min_values", 1), one.get("max_values", 1)
    if not 1 <= len(options) <= 25:
        raise Refusal("options", "1 to 25")
    if not 0 <= least <= most <= len(options):
        raise Refusal("max_values", f"{least} to {most} of {len(options)}")
    for option in options:
        _known("option", option, {"label", "value", "description", "emoji", "default"})
        if not 1 <= len(option["label"]) <= 100 or not 1 <= len(option["value"]) <= 100:
            raise Refusal("option", "label and value: 1 to 100 characters")
    if len({option["value"] for option in options}) < len(options):
        raise Refusal("option", "a value is there twice")
    if len(one.get("placeholder") or "") > 150 or not 1 <= len(one.get("custom_id") or "") <= 100:
        raise Refusal("placeholder", "placeholder at most 150, custom id 1 to 100")


def walked(components: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for one in components:
        yield one
        yield from walked(one.get("components", []))


def commands(sent: Sequence[Mapping[str, Any]]) -> None:
    """Refusal unless Discord would take these as an application's commands."""
    names = [one.get("name") for one in sent]
    if len(names) > 100 or len(names) != len(set(names)):
        raise Refusal("name", "100 commands, each once")
    for one in sent:
        _known("command", one, COMMAND)
        _named(one)
        _options(one.get("options") or [], depth=0)


def _named(one: Mapping[str, Any]) -> None:
    if not NAME.fullmatch(str(one.get("name"))):
        raise Refusal("name", f"{one.get('name')!r}")
    if not 1 <= len(str(one.get("description") or "")) <= 100:
        raise Refusal("description", f"of {one['name']}: 1 to 100 characters")


def _options(options: Sequence[Mapping[str, Any]], depth: int) -> None:
    if len(options) > 25 or depth > 2:
        raise Refusal("options", "25, three deep")
    optional = False
    for one in options:
        _known("option", one, OPTION)
        _named(one)
        if len(one.get("choices") or []) > 25:
            raise Refusal("choices", "over 25")
        if one.get("choices") and one.get("autocomplete"):
            raise Refusal("autocomplete", "not with choices")
        if one.get("type") in (SUB_COMMAND, SUB_GROUP):
            _options(one.get("options") or [], depth + 1)
        elif one.get("required"):
            if optional:
                raise Refusal("options", "required ones come first")
        else:
            optional = True


def _known(where: str, sent: Mapping[str, Any], fields: set[str]) -> None:
    if unknown := set(sent) - fields:
        raise Refusal(where, f"unknown: {', '.join(sorted(unknown))}")
