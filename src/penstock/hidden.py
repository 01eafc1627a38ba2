"""What is never shown: settings that are secrets, by their names, and what looks so in a text.

The words are Kafka's, Spark's and Hadoop's. Too much hidden costs a look at a file; too little
cannot be taken back from a log.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

HIDDEN = "***"
_KEYS = (
    r"(?:access|account|api|app|client|encryption|hmac|license|master|private|secret|shared|"
    r"signing|storage)[._-]?key|(?:ssh|ssl|tls)[._-]?key$"
)
_PASSWORDS = r"passw|passphrase|passcode|(?:^|[._-])pwd?$|(?:^|store|key|db|user|[._-])pass$"
SECRET_WORDS = (
    rf"secret|{_PASSWORDS}|token|jaas|credential|[.]pem$|keystore[.]key|keystore[.]certificate|"
    rf"{_KEYS}|[.]sas[.]|user[._-]?info|sasl[.]oauthbearer[.](?:config|assertion)"
)
"""A regular expression, as Python and Java read it, that finds the names of settings not shown."""

_SECRET = re.compile(SECRET_WORDS, re.IGNORECASE)
SECRET_VALUES = r"://[^/\s:@]*:\S*@|(?:^|[;,&\s])(?:pwd?|pass)\s*="
"""A regular expression for both that finds the addresses, and whatever is told to a database, with
a password in it that the words above do not find.
"""
_RUN = re.compile(r"\S++")
# The user stays: knowing who was refused helps.
_IN_ADDRESS = re.compile(
    r"(?P<user>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://[^/\s:@]*):(?P<password>.*)", re.IGNORECASE
)
_IN_ENCODED_ADDRESS = re.compile(r"(?P<user>%3A%2F%2F[^%]*%3A).*%40", re.IGNORECASE)
# In an address these let in; elsewhere a key is that of a record.
_IN_QUERY = re.compile(r"(?P<name>[?&](?:key|sig|auth|code)=)[^&\s\"'<>]*", re.IGNORECASE)
_KEY_BLOCK = re.compile(
    r"(?P<name>-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----).*?"
    r"(?=-----END [A-Z ]*PRIVATE KEY|\Z)",
    re.DOTALL,
)
# Not what prose says of bearers: a digit, or many letters.
_BEARER = re.compile(
    r"\b(?P<name>bearer|basic)\s+(?=[\w.~+/=-]*\d|[\w.~+/=-]{16})[\w.~+/=-]+", re.IGNORECASE
)
# Of three parts, of which the first begins as a JSON object does in base64.
_WEB_TOKEN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*")
# An element, and one with the setting's name that one with its value follows, as Hadoop has it.
_ELEMENT = re.compile(
    r"(?P<tag><(?P<name>[\w.:-]++)[^<>]*>)(?P<text>[^<>]*)"
    r"(?P<behind></(?P=name)>\s{0,40}(?:<value>(?P<value>[^<>]*))?)"
)
_PAIR = re.compile(
    r"""(?P<before>(["'])(?:name|key|option|property|setting)\2\s{0,4}:\s{0,4}
    (["'])(?P<name>[\w.-]++)\3,\s{0,4}\2value\2\s{0,4}:\s{0,4})
    (?P<quote>["'])(?:\\.|(?!(?P=quote))[^\\])*+""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

_NAMES = re.compile(
    rf"secret|{_PASSWORDS}|token|jaas|credential|{_KEYS}|user[._-]?info|signature|"
    r"(?:^|[._-])(?:authorization|cookie)$|"
    r"^ssl[._].*[._]pem$|keystore[.](?:key|certificate)|[.]sas[.]",
    re.IGNORECASE,
)
_ORDINARY = re.compile(r"secretar|tokeni[sz]|(?:count|max|num)[._-]?tokens?", re.IGNORECASE)
_HEADERS = ("cookie", "authorization")
"""How names end whose values have blanks, and go on to the end of their lines."""
# A sign of equality, also as addresses have it; the comma of a list of words or of a pair is judged
# by what stands before; a blank is one of a command line.
_TOLD = re.compile(
    r"""(?<![\w.-])(?P<name>(?:(?:access|api|encryption|private|secret|signing)[ ])*[\w.-]++)
    (?P<is>(?:\[\w*\])?\\*["'`]?\]?[^\S\n]*+(?:=>|->|→|:=|!?={1,3}|:(?!:|//))
    (?:\s{0,40}(?=\\*["'])|[^\S\n]*+)|
    (?:%22)?%3[AD](?:%2[02])*|["'],\s{0,4}(?=["'])|[ ]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_STRING = r"""[bfru]{0,2}(?:"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')++"""
_INNER_STRING = r"""(?P<quote>\\+["']).*?(?<!\\)(?P=quote)"""
"""Behind a backslash it is one within another."""
# Where anything else comes behind the quotation mark, that belongs to what is in it.
_QUOTED = rf"""{_STRING}(?:(?![\s,;:.)\]}}>&'"`\\]|\Z)[^\n]*)?"""
# Up to a blank, or to where the next setting begins: a password may have a comma.
_BARE = r"""(?:(?![;,&]\s{0,4}\\*["']?[\w.-]++\\*["']?\s{0,4}[=:])\S)++"""
_VALUE = re.compile(
    # Without an end, a text that was cut short.
    rf"""{_QUOTED}|{_INNER_STRING}|\\*["'][^\n]*|
    (?:bearer|basic|digest|negotiate|apikey)\s+[^\s"',;]+|{_BARE}""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_IN_BRACKETS = re.compile(
    rf"(?P<text>{_STRING}|{_INNER_STRING})|(?P<opens>[\[{{(])|(?P<closes>[\]}})])", re.DOTALL
)
_BRACKETS_MAX = 100_000
_ENCODED = re.compile(r"""(?:(?!%(?:2[0267C]|3B|0[AD]))[^\s&"'<>])+""", re.IGNORECASE)
# Of Java's properties: a backslash before the end of a line has it go on.
_LINE = re.compile(r"(?:[^\\\n]|\\.|\\\n)*", re.DOTALL)
_CONTINUED = re.compile(r"(?:\\|[|>][\d+-]{0,2})?[^\S\n]*\n")
"""Where the value is in the next lines, as in YAML and in Java's properties."""
_BEHIND = "\"'`])}>,;"
"""What stands behind a value, and is not its end."""

_SAID = re.compile(
    rf"""(?P<name>[\w.-]++)\s*=\s*(?:(?P<string>{_STRING})|(?P<bare>[^\s;,&]+))""", re.VERBOSE
)
_PEM_LINE = re.compile(r"^[A-Za-z0-9+/=]{16,}$", re.MULTILINE)


def is_secret(name: str) -> bool:
    """Whether the setting of that name is not to be shown.

    >>> is_secret("sasl.password"), is_secret("spark.hadoop.fs.s3a.secret.key")
    (True, True)
    >>> is_secret("ssl.ca.location"), is_secret("linger.ms")
    (False, False)
    """
    return bool(_SECRET.search(name))


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as they may be shown.

    >>> shown({"sasl.username": "nurse", "sasl.password": "w4rd"})
    {'sasl.username': 'nurse', 'sasl.password': '***'}
    """
    return {
        name: HIDDEN if is_secret(name) else without_secrets(str(value))
        for name, value in settings.items()
    }


def secrets_in(name: str, value: str) -> Iterator[str]:
    """What of a setting must not be shown: all of it, and what somebody who is given it takes out
    of it: the password of a user, of an address, of a line for JAAS, each line of a key.

    >>> list(secrets_in("sasl.jaas.config", 'X required username="nurse" password="w4rd";'))[1:]
    ['w4rd']
    >>> list(secrets_in("snapshot_location", "s3://me:w4rd@bucket"))
    ['w4rd']
    """
    if is_secret(name):
        yield value
        yield from _PEM_LINE.findall(value)
        if re.search("user[._-]?info", name, re.IGNORECASE):
            yield value.partition(":")[2]
    for run in _RUN.finditer(value):
        address = _IN_ADDRESS.search(run[0].rpartition("@")[0])
        if address is not None:
            yield address["password"]
    for said in _SAID.finditer(value):
        if _NAMES.search(said["name"]):
            yield said["bare"] or re.sub(r"\\(.)", r"\1", said["string"][1:-1])


def spellings(secret: str) -> set[str]:
    """A secret as it may come up in a text: as it is, in quotes, in an address, in base64.

    >>> sorted(spellings("a/b"))
    ['YS9i', 'a%2Fb', 'a/b']
    """
    data = secret.encode("utf-8", "surrogateescape")
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        repr(data)[2:-1],
        quote(data, safe=""),
        quote(data),
        quote_plus(data),
        base64.b64encode(data).decode(),
    }


def without_secrets(text: str) -> str:
    """A text without what looks like a secret in it: the password of an address, a private key,
    what bears a token, and whatever is said of a name that is one of a secret.

    >>> without_secrets("s3://me:w4/rd@bucket/path?region=x&secret_key=w4rd")
    's3://me:***@bucket/path?region=x&secret_key=***'
    >>> without_secrets("host=db password='w4 rd' user=me"), without_secrets('{"api_key": "w4rd"}')
    ('host=db password=*** user=me', '{"api_key": "***"}')
    >>> without_secrets("key: ann, a token provider")
    'key: ann, a token provider'
    """
    text = _KEY_BLOCK.sub(rf"\g<name>{HIDDEN}", text)
    text = _RUN.sub(_without_password, text)
    text = _IN_QUERY.sub(rf"\g<name>{HIDDEN}", text)
    text = _ELEMENT.sub(_without_text, text)
    text = _PAIR.sub(_without_value, text)
    text = _without_named(text)
    text = _WEB_TOKEN.sub(HIDDEN, text)
    return _BEARER.sub(rf"\g<name> {HIDDEN}", text)


def _without_password(run: re.Match[str]) -> str:
    """What has no blank in it, without the password of an address, which ends at the last @:
    passwords may have one, and a slash, as many keys of S3 have.
    """
    before, at, host = run[0].rpartition("@")
    whole = _IN_ADDRESS.sub(rf"\g<user>:{HIDDEN}", before) + at + host if at else host
    return _IN_ENCODED_ADDRESS.sub(rf"\g<user>{HIDDEN}%40", whole)


def _without_text(element: re.Match[str]) -> str:
    """An element of XML without its text, or without that of the value behind it."""
    if element["text"].strip() and _is_name(element["name"]):
        return f"{element['tag']}{HIDDEN}{element['behind']}"
    if element["value"] and _is_name(element["text"].strip()):
        return element[0].removesuffix(element["value"]) + HIDDEN
    return element[0]


def _without_value(pair: re.Match[str]) -> str:
    """A name and a value, each as the value of a name, without the second one."""
    return f"{pair['before']}{pair['quote']}{HIDDEN}" if _is_name(pair["name"]) else pair[0]


def _without_named(text: str) -> str:
    parts: list[str] = []
    done = 0
    for told in _TOLD.finditer(text):
        if told.start() < done or not _is_told(told):
            continue
        end = _end_of_value(told)
        if end > told.end():
            # What has its name in quotes has the value in them, too.
            is_quoted = told["is"].lstrip("\\")[0] in "\"'`" and text[told.end()] in "\\\"'"
            mark = text[told.end() : end] if is_quoted else ""
            quotation = mark[: len(mark) - len(mark.lstrip("\\")) + 1]
            parts += [text[done : told.end()], quotation, HIDDEN, quotation]
            done = end
    return "".join([*parts, text[done:]])


def _is_name(name: str) -> bool:
    """Whether what is said of that name in a text is a secret."""
    return bool(_NAMES.search(_ORDINARY.sub("", name)))


def _is_told(told: re.Match[str]) -> bool:
    """Whether a name, and what follows it, says a secret."""
    name, sign = told["name"], told["is"].strip()
    if not _is_name(name.replace(" ", ".")):
        return False
    before = told.string[: told.start()]
    if not sign or sign.endswith(","):
        # An option of a command, or the first of two: else it is one of many words.
        return name.startswith("--") or (bool(sign) and before.endswith(("('", '("')))
    # A user of an address, a file of which something is said, and a part of a library's name.
    return not (sign == ":" and before.endswith(("/", ":")))


def _end_of_value(told: re.Match[str]) -> int:
    text, begin = told.string, told.end()
    if "%3" in told["is"]:
        encoded = _ENCODED.match(text, begin)
        return begin if encoded is None else encoded.end()
    if begin < len(text) and text[begin] in "[{(":
        return _end_of_brackets(text, begin)
    line = text.rfind("\n", 0, told.start()) + 1
    continued = _CONTINUED.match(text, begin)
    if continued is not None:
        return _end_of_lines(text, continued, _depth(text, line))
    found = _VALUE.match(text, begin)
    if found is None:
        return begin
    is_quoted = found[0].lstrip("bfru")[:1] in ("\\", '"', "'")
    is_property = "." in told["name"] and "=" in told["is"]
    is_property = is_property and not text[line : told.start()].strip()
    if not is_quoted and (is_property or told["name"].lower().endswith(_HEADERS)):
        # Its value has blanks, too.
        rest = _LINE.match(text, begin)
        return found.end() if rest is None else rest.end()
    return found.end() if is_quoted else begin + len(found[0].rstrip(_BEHIND))


def _end_of_brackets(text: str, begin: int) -> int:
    """Where what is in brackets ends; where they do not, the line's end: it was cut short."""
    depth = 0
    for found in _IN_BRACKETS.finditer(text, begin, begin + _BRACKETS_MAX):
        depth += bool(found["opens"]) - bool(found["closes"])
        if not depth:
            return found.end()
    end = text.find("\n", begin)
    return len(text) if end < 0 else end


def _end_of_lines(text: str, first: re.Match[str], depth: int) -> int:
    """Where the lines end that are further to the right than a name's, or that a list has."""
    begin, end = first.end(), first.start()
    is_more = first[0].startswith("\\")
    while begin < len(text):
        stop = text.find("\n", begin)
        stop = len(text) if stop < 0 else stop
        written = text[begin:stop]
        is_item = _depth(text, begin) == depth and written.lstrip().startswith("- ")
        if written.strip() and _depth(text, begin) <= depth and not is_item and not is_more:
            break
        if written.strip():
            end = stop
        is_more = written.endswith("\\")
        begin = stop + 1
    return end


def _depth(text: str, line: int) -> int:
    """How far to the right a line begins."""
    written = text[line:].partition("\n")[0]
    return len(written) - len(written.lstrip())
