"""Values that fit, values that don't, and values that somebody hopes will be taken for something else."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

XSS = "<i class=kb-fuzz>"
INJECTED = "X-Kb-Injected"
TEXTS: Sequence[str] = (
    "", " ", "0", "-1", "null", "true", "a", "transpose", "TRANSPOSE", "..", ".", "../../etc/passwd", "..%2f..%2fetc",
    "/etc/passwd", "C:\\windows", "\\\\host\\share", "%00", "\x00", "a\x00b", "\r\n", f"a\r\n{INJECTED}: yes",
    f"a\n{INJECTED}: yes", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202eabc", "\ufeff", "\ufffd", "ſ", "İ", "ß", "１２",
    "٣", "e\u0301", "👩‍👩‍👧‍👦", "𝕏", "\ud800", "\udfff\ud800", "' OR 1=1 --", '"; DROP TABLE run; --', "%", "_", "%s%n",
    "{0}", "{{7*7}}", "${jndi:ldap://127.0.0.1:9}", XSS, f'"{XSS}', f"javascript:{XSS}", "//evil.example",
    "/\\evil.example", "https://evil.example/", "http:evil", "a" * 65, "a" * 300, "é" * 200, "1" * 400,
    "9999-12-31 23:59", "0001-01-01", "2026-02-30", "2026-11-24", "24:00", "2026-03-29 02:30", "Europe/Berlin",
    "Europe/../../etc/passwd", "../localtime", "/etc/localtime", "UTC", "person:1", "discord:", "discord:8138",
    "oidc:1",
    "person:99999999999999999999", "now", "1.5", "1e9", "0x10", "NaN", "Infinity", "H100", "h100", "[]",
    "(((((((((((a+)+)+",
)  # fmt: skip
NUMBERS: Sequence[Any] = (
    0, 1, -1, 2, 100, 101, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 1.5, -0.0, 1e308,
    float("nan"), float("inf"),
)  # fmt: skip
OTHERS: Sequence[Any] = (None, True, False, [], {}, [[]], {"a": {}}, [None], "x", 7)
KNOWN: Mapping[str, Sequence[str]] = {
    "leaderboard": ("transpose", "Transpose", "open", "vault", "-", "nowhere"),
    "leaderboard_name": ("transpose", "open", "nowhere"),
    "gpu": ("H100", "A100", "h100", "T4"),
    "mode": ("test", "benchmark", "leaderboard", "profile", "TEST"),
    "submission_id": ("@{judged}@", "@{judged}@", "@{profiled}@", "@{private}@", "@{waiting}@", "@{eves}@", "1", "2"),
    "submission": ("@{waiting}@", "@{judged}@", "1", "x"),
    "run_id": ("1", "2", "3", "4"),
    "user_id": ("1", "2", "ada", "eve", "mallory", "discord:8138", "person:2"),
    "provider": ("discord", "github", "oidc"),
    "act": ("pause", "resume", "cancel", "ban", "unban", "nothing"),
    "language": ("Python", "Triton", "CUDA"),
    "name": ("trace.json.gz", "functions.json", "style.css", "live.js", "new-board"),
    "category": ("test", "leaderboard"),
    "course": ("gpu-2026", "gpu-2026", "GPU 2026", "nowhere"),
    "code": ("@{invite}@", "AAAA-BBBB-CCCC"),
    "since_token": ("now", "1", "0", "c0", "e0"),
    "object_id": ("AC", "python3", "H100", "1-H100", "@{judged}@-H100", "@{private}@-A100"),
    "next": ("/me", "/board/transpose", "//evil.example", "/\\evil.example", "https://evil.example", "/%0d%0aX: y"),
    "person": ("ada", "eve", "mallory", "discord:8138"),
    "account": ("8138", "8139", "77"),
    "token": ("@{pending}@", "@{eve}@", "nothing"),
    "repository": (
        "@{problems}@",
        "/nowhere",
        "file:///nowhere",
        "-u",
        "ext::sh -c true",
        "http://127.0.0.1:9/x.git",
        "",
    ),
    "problem_set": ("a", "../a", "nothing"),
    "branch": ("main", "-x", "nothing", ""),
    "directory": (
        "@{transpose}@",
        "@{transpose}@/reference.py",
        "/nowhere",
        "/",
        "/etc/passwd",
        "/proc/self/environ",
        "",
    ),
    "visibility": ("public", "closed"),
    "role": ("participant",),  # a host may well make anybody a host, who would then see what hosts see
    "mode_category": ("test", "leaderboard"),
    "until": ("2027-01-01", "2026-05-02 12:00", "1999-01-01"),
    "late_until": ("2027-02-01", "1999-01-01"),
    "deadline": ("2027-01-01", "2026-05-02 12:00", "1999-01-01"),
    "leaderboards": ("transpose", "open"),
    "file": ("k.py",),
    "last-event-id": ("0", "1", "99999999999999999999"),
    "X-Kbslurm-Acting-For": ("discord:8138", "person:ada", "person:1"),
    "X-Kbslurm-Discord-Roles": ("1:2,3", "1:", "x"),
}
# Any other value of these would be looked for elsewhere than on this machine.
BOUND = frozenset({"repository", "directory"})


def fits(draw: random.Random, name: str, schema: Mapping[str, Any], whole: Mapping[str, Any] | None = None) -> Any:
    """A value that the schema allows, among them what exists."""
    whole = schema if whole is None else whole
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    if options := schema.get("anyOf"):
        return fits(draw, name, draw.choice(options), whole)
    if "enum" in schema:
        return draw.choice(KNOWN[name] if name in KNOWN else schema["enum"])
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        wanted = schema.get("properties", {})
        must = set(schema.get("required", ()))
        return {key: fits(draw, key, of, whole) for key, of in wanted.items() if key in must or draw.random() < 0.6}
    if kind == "array":
        return [fits(draw, name, schema.get("items", {}), whole) for _ in range(draw.randint(0, 3))]
    if kind == "integer" or kind == "number":
        low, high = int(schema.get("minimum", 0)), int(schema.get("maximum", 50))
        return draw.randint(low, max(low, min(high, low + 50)))
    if kind == "boolean":
        return draw.random() < 0.5
    if kind == "null":
        return None
    return text(draw, name) if draw.random() < 0.8 or name in BOUND else draw.choice(TEXTS)


def text(draw: random.Random, name: str) -> str:
    """Something that may exist under this name, or a few letters."""
    known = KNOWN.get(name)
    return draw.choice(known) if known else "".join(draw.choices("abcdefghij-.0123", k=draw.randint(1, 12)))


def hostile(draw: random.Random) -> str:
    """A text that nobody expects."""
    found = draw.choice(TEXTS)
    if draw.random() < 0.2:
        found += draw.choice(TEXTS)
    if draw.random() < 0.05:
        found *= draw.choice((10, 100, 1000))
    return found[:200_000]


def spoilt(draw: random.Random, value: Any) -> Any:
    """The same with one thing in it changed to something else."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        found, key = dict(value), draw.choice(sorted(value))
        if key in BOUND:
            found[draw.choice(TEXTS)] = draw.choice(OTHERS)
        elif draw.random() < 0.15:
            del found[key]
        else:
            found[key] = spoilt(draw, found[key])
        return found
    if isinstance(value, list) and value and draw.random() < 0.5:
        return [*value[1:], spoilt(draw, value[0])]
    which = draw.random()
    if which < 0.5:
        return hostile(draw)
    if which < 0.75:
        return draw.choice(NUMBERS)
    if which < 0.8:
        return [hostile(draw)] * draw.choice((1, 50, 500))
    if which < 0.83:
        return nested(draw.choice((20, 200, 5000)))
    return draw.choice(OTHERS)


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    found: Any = []
    for _ in range(min(depth, 400)):
        found = [found]
    return found
