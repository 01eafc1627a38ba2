"""The user's Kafka properties in the words of the two clients.

Properties are given once, in librdkafka's words; Spark's source runs the Java client, which says a
few of them differently. What both know goes through unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

_SAME_MEANING = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.keystore.password": "ssl.keystore.password",
}
_ONLY_LIBRDKAFKA = ("sasl.username", "sasl.password", "log_level", "debug", "socket.", "queued.")
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """These librdkafka properties as the Java client wants them.

    >>> java_properties({"security.protocol": "SSL", "ssl.ca.location": "ca.pem"})
    {'security.protocol': 'SSL', 'ssl.truststore.location': 'ca.pem', 'ssl.truststore.type': 'PEM'}
    """
    result: dict[str, str] = {}
    for name, value in properties.items():
        if not name.startswith(_ONLY_LIBRDKAFKA):
            result[_SAME_MEANING.get(name, name)] = str(value)
    if "ssl.ca.location" in properties:
        result["ssl.truststore.type"] = "PEM"
    mechanism = result.get("sasl.mechanism", "")
    if mechanism in _LOGIN and "sasl.username" in properties:
        user, password = properties["sasl.username"], properties.get("sasl.password", "")
        result.setdefault(
            "sasl.jaas.config",
            f"{_LOGIN[mechanism]} required username={_quoted(user)} password={_quoted(password)};",
        )
    return result


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
