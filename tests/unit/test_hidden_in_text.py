"""What looks like a secret is hidden wherever it stands in a text, and nothing else is."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.hidden import HIDDEN, without_secrets

NAMES = [
    *("password", "PASSWORD", "db_password", "dbPassword", "ssl.key.password", "PGPASSWORD"),
    *("passwd", "passphrase", "secret", "client_secret", "clientSecret", "oauthbearer.secret"),
    *("access_key", "accessKey", "AWS_ACCESS_KEY_ID", "aws-secret-access-key", "secret_key"),
    *("api_key", "apiKey", "api-key", "X-Api-Key", "APIKEY", "private_key", "account_key"),
    *("signing_key", "encryption_key", "SharedAccessKey", "AccountKey", "storepass", "db_pass"),
    *("token", "tokens", "auth_token", "accessToken", "X-Amz-Security-Token", "db.pwd"),
    *("credential", "credentials", "basic.auth.user.info", "basic_auth_user_info", "signature"),
]
ONE_WORD = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_~.!@#$%^*-|?",
    min_size=8,
    max_size=40,
)
ANYTHING = st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=30)
SAID = [
    *("{name}={secret}", "{name} = {secret}", "{name}: {secret}", "{name}:{secret}"),
    *("{name} => {secret}", "{name} := {secret}", "--{name} {secret}", "--{name}={secret}"),
    *("Joined with {name}={secret} at once", "({name}={secret})", "{{{name}: {secret}, user: x}}"),
    *("user=x;{name}={secret};region=y", "user=x, {name}={secret}, region=y", "`{name}`: {secret}"),
    "https://host/path?user=x&{name}={secret}",
]


def assert_hidden(text: str, secret: str) -> None:
    shown = without_secrets(text)
    # What is short may be in any text.
    assert secret not in shown.replace(HIDDEN, "")
    assert HIDDEN in shown
    assert without_secrets(shown) == shown


@pytest.mark.parametrize("said", SAID)
@given(name=st.sampled_from(NAMES), secret=ONE_WORD)
def test_what_is_said_of_a_secret_is_hidden(said: str, name: str, secret: str) -> None:
    assert_hidden(said.format(name=name, secret=secret), secret)


@given(name=st.sampled_from(NAMES), secret=ANYTHING)
def test_whatever_is_in_quotes_is_hidden(name: str, secret: str) -> None:
    for as_it_is in (True, False):
        written = json.dumps({"user": "x", name: secret, "more": [1]}, ensure_ascii=as_it_is)
        shown = without_secrets(written)
        # What is left is JSON still.
        assert json.loads(shown) == {"user": "x", name: HIDDEN, "more": [1]}
    for text in (repr({name: secret}), repr({name: secret.encode()}), f"{name}={secret!r}"):
        inner = text.split(name, 1)[1]
        assert set(without_secrets(text).split(name, 1)[1]) <= set("'\"=: }*"), inner
    twice = json.dumps(json.dumps({name: secret}))
    assert set(without_secrets(twice).split(name, 1)[1]) <= set("\\\"': }*")


@given(secret=ANYTHING)
def test_what_addresses_have_is_hidden(secret: str) -> None:
    safe = quote(secret, safe="") + "-end"
    for text in (
        f"https://nurse:{safe}@registry:8081/subjects",
        f"https://:{safe}@registry",
        f"s3://bucket/x?access_key={safe}&region=y",
        f"https://host/x?key={safe}",
        f"https://host/x?a=b&sig={safe}#there",
    ):
        assert_hidden(text, safe)


@given(secret=st.text("abcXYZ019 ,;:/+=!\"'\\", min_size=8, max_size=30).map(str.strip))
def test_a_line_of_javas_properties_is_hidden_to_its_end(secret: str) -> None:
    lines = f"acks=all\nssl.key.password={secret}.end\nlinger.ms=5\n"
    shown = without_secrets(lines)
    assert shown.splitlines()[::2] == ["acks=all", "linger.ms=5"]
    assert secret not in shown or len(secret) < 4


@given(secret=st.text("abcXYZ019 ,;:/+=!'", min_size=8, max_size=30))
def test_what_jaas_says_is_hidden(secret: str) -> None:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    for name in ("sasl.jaas.config=", "The module is ", ""):
        text = f'{name}{login} required username="nurse" password="{secret}";'
        assert secret not in without_secrets(text)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer w4rd", "w4rd"),
        ("authorization: Basic bnVyc2U6dzRyZA==", "bnVyc2U6dzRyZA=="),
        ("{'Authorization': 'Basic dzRyZA=='}", "dzRyZA"),
        ("sent Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "eyJ"),
        ("Cookie: session=w4rd", "w4rd"),
        ("Set-Cookie: a=b; session=w4rd; Secure\r\nHost: here", "w4rd"),
        ("api key: w4rd", "w4rd"),
        ("the secret access key = w4rd", "w4rd"),
        ('passwords: ["w4rd", "w4 rd"]', "w4"),
        ('{"credentials": {"user": "x", "word": "w4rd"}}', "w4rd"),
        ("password='it''s w4rd'", "w4rd"),
        ('password="w4 rd that was cut sh', "w4"),
        ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=w4rd==;Suffix=y", "w4rd"),
        ("x\n-----BEGIN RSA PRIVATE KEY-----\nw4rd\n-----END RSA PRIVATE KEY-----\n", "w4rd"),
        ("-----BEGIN PRIVATE KEY-----\\nw4rd", "w4rd"),
        ("https://host/blob?sv=1&sig=w4rd%3D", "w4rd"),
        ("jdbc:sqlserver://host;user=x;password=w4rd;encrypt=true", "w4rd"),
        # Written as a part of an address.
        ("GET /?next=https%3A%2F%2Fh%2F%3Faccess_key%3Dw4rd%26a%3Db", "w4rd"),
        ("https%3A%2F%2Fnurse%3Aw4rd%40host%2F", "w4rd"),
        ("%7B%22password%22%3A%20%22w4rd%22%7D", "w4rd"),
        # Over several lines.
        ("password: |\n  w4rd\nother: 1", "w4rd"),
        ("a:\n  passwords:\n  - w4rd\n  - w4rd2\n  other: 1", "w4rd"),
        ('{"password":\n  "w4rd"}', "w4rd"),
        ("sasl.password=\\\n  w4rd\nother=1", "w4rd"),
        ('sasl.jaas.config=X required \\\n  username="x" \\\n  word="w4rd";\nother=1', "w4rd"),
        ("KafkaClient {\n  X required\n  username=nurse\n  password=w4rd;\n};", "w4rd"),
        # Within others.
        ('{"secrets": {"a": {"b": "w4rd"}, "c": "}w4rd"}, "d": 1}', "w4rd"),
        ('{"passwords": [["a"], "w4rd"], "d": 1}', "w4rd"),
        ('{"credentials": {"a": "w4rd', "w4rd"),
        ("passwords=(('a', 'w4rd'), 'b')", "w4rd"),
        ('\'{"password": "a\\\\"w4rd"}\'', "w4rd"),
        ("{b'password': b'w4rd'}", "w4rd"),
        ("b'password=w4rd'", "w4rd"),
        # As lists of settings and of a command's words are printed.
        ("[('acks', 'all'), ('sasl.password', 'w4rd')]", "w4rd"),
        ("Command '['mysql', '--password', 'w4rd']' returned 1", "w4rd"),
        ("os.environ['MY_PASSWORD'] = 'w4rd'", "w4rd"),
        ("passwords[0]=w4rd", "w4rd"),
        ("password -> w4rd", "w4rd"),
        ('[{"key": "sasl.password", "value": "w4rd"}]', "w4rd"),
        ("{'name': 'api_key', 'value': 'it\\'s w4rd'}", "w4rd"),
        ("<password>w4rd</password>", "w4rd"),
        ('<user password="w4rd"/>', "w4rd"),
        ("<name>fs.s3a.secret.key</name>\n  <value>w4rd</value>", "w4rd"),
        ('Authorization: Digest username="x", response="w4rd"\nHost: here', "w4rd"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nw4rd\n-----END PGP PRIVATE KEY BLOCK-----", "w4"),
        ("it has eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl in it", "c2lnbmF0dXJl"),
        ("PASS=w4rd", "w4rd"),
        ("ssl_key=w4rd", "w4rd"),
    ],
)
def test_forms_of_others_are_hidden(text: str, secret: str) -> None:
    assert_hidden(text, secret)


@pytest.mark.parametrize(
    "text",
    [
        "key: ann",
        "partition key = 7",
        "The record has key=ann, value=72 and partition_key=b",
        "a token provider, and the secret of its success",
        "The secretary: Ann",
        "tokenizer: whitespace, max_tokens=512",
        "Task 0_3 is now running",
        "keys=['ann', 'bob'] lower=a upper=b",
        "monkey=7, keyboard: x, primary_key: id, foreign-key=left",
        "http://127.0.0.1:7700/v1/stores/counts/keys/ann?partition=3&limit=5",
        "/run/secrets/token: permission denied",
        "A token is needed",
        "Wrong password or user",
        "Basic authentication, bearer of news",
        "OAuthBearerToken::value was called",
        "passenger: ann, compass=north, bypass=1",
        "com.example:token-service:1.0,org.wards:secret-stores:2",
        "ssl.ca.location=/etc/kafka/ca.pem",
        "/etc/kafka/ca.pem: No such file",
        "offset=5 position={3: 4711} timestamp=1767225600000",
        "['token', 'patient'] are words",
        "<token/> <name>a</name><value>b</value>",
        '{"name": "ann", "value": "b"}',
        "https%3A%2F%2Fhost%2F%3Fa%3Db",
        "ssl.key.location=/etc/kafka/key.pem",
        "eyJ.a.b",
    ],
)
def test_ordinary_words_are_shown(text: str) -> None:
    assert without_secrets(text) == text


@given(
    words=st.lists(
        st.sampled_from(["key", "keys", "task", "offset", "ann", "partition", "store", "is"])
        | st.integers().map(str),
        max_size=12,
    ),
    signs=st.lists(st.sampled_from([" ", "=", ": ", ", ", ";", "/", "://", "&", '"', "'", "\\"])),
)
def test_what_names_no_secret_is_shown(words: list[str], signs: list[str]) -> None:
    text = "".join(word + sign for word, sign in zip(words, [*signs, *"  " * 12], strict=False))
    assert without_secrets(text) == text


@given(text=st.text(max_size=60))
def test_any_text_goes_through(text: str) -> None:
    assert without_secrets(without_secrets(text)) == without_secrets(text)
