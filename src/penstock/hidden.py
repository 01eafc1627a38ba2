"""What is never shown: settings that are secrets, by their names, and passwords in addresses.

The words are Kafka's, Spark's and Hadoop's. Too much hidden costs a look at a file; too little
cannot be taken back from a log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"
SECRET_WORDS = (
    r"secret|passw|passphrase|token|jaas|credential|[.]pem$|keystore[.]key|keystore[.]certificate|"
    r"access[.]?key|account[.]key|api[.]?key|private[.]?key|encryption[.]key$|[.]sas[.]|user[.]info|"
    r"sasl[.]oauthbearer[.](?:config|assertion)"
)
"""A regular expression, as Python and Java read it, that finds the names of settings not shown."""

_SECRET = re.compile(SECRET_WORDS, re.IGNORECASE)
SECRET_VALUES = r"://[^/\s:@]*:\S*@"
"""A regular expression for both that finds the addresses with a password in them."""
# The user stays: knowing who was refused helps. Up to the last @: passwords may have one, and a
# slash, as many keys of S3 have.
_IN_ADDRESS = re.compile(
    r"(?P<user>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://[^/\s:@]*):\S*@", re.IGNORECASE
)
# As libpq's connection strings and Java's properties say it.
_IN_WORDS = re.compile(
    r"(?P<name>(?<![\w.-])[\w.-]*(?:passw|passphrase|secret|token)[\w.-]*\s*=\s*)"
    r"(?:'(?:[^'\\]|\\.)*'|[^\s&;,'\"]+)",
    re.IGNORECASE,
)
_IN_QUERY = re.compile(
    r"(?P<name>[?&](?:[\w.-]*(?:secret|passw|token|key)[\w.-]*)=)[^&\s]*", re.IGNORECASE
)


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
        name: HIDDEN if is_secret(name) else shown_address(str(value))
        for name, value in settings.items()
    }


def shown_address(text: str) -> str:
    """An address without the password that may be in it.

    >>> shown_address("s3://me:w4rd@bucket/path?region=x&secret_key=w4rd")
    's3://me:***@bucket/path?region=x&secret_key=***'
    >>> shown_address("s3://me:w4/rd@bucket"), shown_address("host=db password='w4 rd' user=me")
    ('s3://me:***@bucket', 'host=db password=*** user=me')
    """
    hidden = _IN_ADDRESS.sub(rf"\g<user>:{HIDDEN}@", text)
    hidden = _IN_QUERY.sub(rf"\g<name>{HIDDEN}", hidden)
    return _IN_WORDS.sub(rf"\g<name>{HIDDEN}", hidden)
