"""The user's Kafka properties in the words of the two clients.

Properties are given once, in librdkafka's words; Spark's source runs the Java client, which says a
few of them differently. What both know goes through unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ConfigError

_SAME_MEANING = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
}
_ONLY_LIBRDKAFKA = (
    "sasl.username",
    "sasl.password",
    "ssl.certificate.location",
    "ssl.key.location",
    # OpenSSL's names of what Java names otherwise; Java's own choice is a safe one.
    "ssl.cipher.suites",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "log_level",
    "debug",
    "socket.",
    "queued.",
)
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SYSTEMS_OWN = "probe"
"""What librdkafka calls the certificates that the system has; Java has some of its own."""


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """These librdkafka properties as the Java client wants them.

    >>> java_properties({"security.protocol": "SSL", "ssl.ca.location": "ca.pem"})
    {'security.protocol': 'SSL', 'ssl.truststore.location': 'ca.pem', 'ssl.truststore.type': 'PEM'}

    Raises `ConfigError` for a file with a key or a certificate that Java cannot have.
    """
    given = dict(properties)
    if given.get("ssl.ca.location") == _SYSTEMS_OWN:
        del given["ssl.ca.location"]
    result: dict[str, str] = {}
    for name, value in given.items():
        if not name.startswith(_ONLY_LIBRDKAFKA):
            result[_SAME_MEANING.get(name, name)] = str(value)
    return result | _spelling(given) | _trust(given) | _own_certificate(given) | _login(given)


def _spelling(given: Mapping[str, str]) -> dict[str, str]:
    """Values that Java writes otherwise."""
    result: dict[str, str] = {}
    if "security.protocol" in given:
        result["security.protocol"] = given["security.protocol"].upper()
    algorithm = "ssl.endpoint.identification.algorithm"
    if given.get(algorithm, "").lower() == "none":
        result[algorithm] = ""
    return result


def _trust(given: Mapping[str, str]) -> dict[str, str]:
    is_pem = "ssl.ca.location" in given or "ssl.ca.pem" in given
    return {"ssl.truststore.type": "PEM"} if is_pem else {}


def _own_certificate(given: Mapping[str, str]) -> dict[str, str]:
    """The client's key and certificate: two files there, two texts here; or a PKCS#12 file."""
    if "ssl.keystore.location" in given:
        return {"ssl.keystore.type": "PKCS12"}
    result = {
        java: _read(name, given[name])
        for name, java in (
            ("ssl.certificate.location", "ssl.keystore.certificate.chain"),
            ("ssl.key.location", "ssl.keystore.key"),
        )
        if name in given
    }
    key = result.get("ssl.keystore.key") or given.get("ssl.key.pem", "")
    if any(f"BEGIN {kind} PRIVATE KEY" in key for kind in ("RSA", "EC", "DSA")):
        raise ConfigError(
            "The private key of option kafka is in a form that Java does not read",
            where={"property": "ssl.key.location"},
            hint="Make one of it that both clients read: openssl pkcs8 -topk8 -in KEY -out KEY.pk8",
        )
    if result or "ssl.certificate.pem" in given or "ssl.key.pem" in given:
        result["ssl.keystore.type"] = "PEM"
    return result


def _read(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no PEM file"
        raise ConfigError(
            f"A file that option kafka names cannot be read: {why}",
            where={"property": name, "file": path},
            hint="Name a PEM file that this user may read",
        ) from error


def _login(given: Mapping[str, str]) -> dict[str, str]:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms", "")
    if mechanism not in _LOGIN or "sasl.username" not in given:
        return {}
    user, password = _quoted(given["sasl.username"]), _quoted(given.get("sasl.password", ""))
    module = _LOGIN[mechanism]
    return {"sasl.jaas.config": f"{module} required username={user} password={password};"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
