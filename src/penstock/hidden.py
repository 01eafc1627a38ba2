"""What is never shown: settings that are secrets, by their names, and what looks so in a text.

The words are Kafka's, Spark's and Hadoop's. Too much hidden costs a look at a file; too little
cannot be taken back from a log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"
_KEYS = (
    r"(?:access|account|api|app|client|encryption|master|private|secret|shared|signing|storage)"
    r"[._-]?key"
)
SECRET_WORDS = (
    r"secret|passw|passphrase|token|jaas|credential|[.]pem$|keystore[.]key|keystore[.]certificate|"
    rf"{_KEYS}|[.]sas[.]|user[._-]?info|sasl[.]oauthbearer[.](?:config|assertion)"
)
"""A regular expression, as Python and Java read it, that finds the names of settings not shown."""

_SECRET = re.compile(SECRET_WORDS, re.IGNORECASE)
SECRET_VALUES = r"://[^/\s:@]*:\S*@"
"""A regular expression for both that finds the addresses with a password in them."""
_RUN = re.compile(r"\S++")
# The user stays: knowing who was refused helps.
_IN_ADDRESS = re.compile(
    r"(?P<user>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://[^/\s:@]*):.*", re.IGNORECASE
)
# In an address these let in; elsewhere a key is that of a record.
_IN_QUERY = re.compile(r"(?P<name>[?&](?:key|sig|auth|code)=)[^&\s\"'<>]*", re.IGNORECASE)
_KEY_BLOCK = re.compile(
    r"(?P<name>-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# Not what prose says of bearers: a digit, or many letters.
_BEARER = re.compile(
    r"\b(?P<name>bearer|basic)\s+(?=[\w.~+/=-]*\d|[\w.~+/=-]{16})[\w.~+/=-]+", re.IGNORECASE
)

_NAMES = re.compile(
    rf"secret|passw|passphrase|token|jaas|credential|{_KEYS}|user[._-]?info|signature|"
    r"(?:^|[._-])(?:pwd|authorization|cookie)$|(?:store|key|db|user|[._-])pass$|"
    r"^ssl[._].*[._]pem$|keystore[.](?:key|certificate)|[.]sas[.]",
    re.IGNORECASE,
)
_ORDINARY = re.compile(r"secretar|tokeni[sz]|(?:count|max|num)[._-]?tokens?", re.IGNORECASE)
_TOLD = re.compile(
    r"""(?<![\w.-])(?P<name>(?:(?:access|api|encryption|private|secret|signing)[ ])*[\w.-]++)
    (?P<is>\\*["'`]?[^\S\n]{0,40}(?:=>|:=|={1,2}|:(?!:|//))
    (?:\s{0,40}(?=\\*["'])|[^\S\n]{0,40})|[ ]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTED = r"""[bfru]{0,2}(?:"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')++"""
# Up to a blank, or to where the next setting begins: a password may have a comma.
_BARE = r"""(?:(?![;,&]\s{0,4}\\*["']?[\w.-]++\\*["']?\s{0,4}[=:])\S)++"""
_VALUE = re.compile(
    # Behind a backslash a quotation within another one; without an end, a text that was cut short.
    rf"""{_QUOTED}|(?P<quote>\\+["']).*?(?<!\\)(?P=quote)|\\*["'][^\n]*|\[[^\]]*\]|\{{[^{{}}]*\}}|
    (?:bearer|basic|digest|negotiate|apikey)\s+[^\s"',;]+|{_BARE}""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_BEHIND = "\"'`])}>,;"
"""What stands behind a value, and is not its end."""


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
    text = _without_named(text)
    return _BEARER.sub(rf"\g<name> {HIDDEN}", text)


def _without_password(run: re.Match[str]) -> str:
    """What has no blank in it, without the password of an address, which ends at the last @:
    passwords may have one, and a slash, as many keys of S3 have.
    """
    before, at, host = run[0].rpartition("@")
    return _IN_ADDRESS.sub(rf"\g<user>:{HIDDEN}", before) + at + host if at else host


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
            quote = mark[: len(mark) - len(mark.lstrip("\\")) + 1]
            parts += [text[done : told.end()], quote, HIDDEN, quote]
            done = end
    return "".join([*parts, text[done:]])


def _is_told(told: re.Match[str]) -> bool:
    """Whether a name, and what follows it, says a secret."""
    name, sign = told["name"], told["is"].strip()
    if not _NAMES.search(_ORDINARY.sub("", name.replace(" ", "."))):
        return False
    if not sign:
        return name.startswith("--")
    before = told.string[: told.start()]
    # A user of an address, a file of which something is said, and a part of a library's name.
    return not (sign == ":" and before.endswith(("/", ":")))


def _end_of_value(told: re.Match[str]) -> int:
    text, begin = told.string, told.end()
    line = text.rfind("\n", 0, told.start()) + 1
    found = _VALUE.match(text, begin)
    if found is None:
        return begin
    is_quoted = found[0].lstrip("bfru")[:1] in tuple("\\\"'[{")
    is_property = "." in told["name"] and "=" in told["is"]
    is_property = is_property and not text[line : told.start()].strip()
    if is_property or told["name"].lower().endswith("cookie"):
        # A line of Java's properties, or a header: its value has blanks, too.
        end = text.find("\n", begin)
        return found.end() if is_quoted else len(text) if end < 0 else end
    return found.end() if is_quoted else begin + len(found[0].rstrip(_BEHIND))
