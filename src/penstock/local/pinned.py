"""The JVM parts by name, version and SHA-256, as data.

What is listed is what gets downloaded: nothing is resolved transitively, so that a new release of a
dependency's dependency cannot reach a user's machine unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Jar:
    """One artifact of a Maven repository, pinned to its bytes."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


@dataclass(frozen=True)
class JarSet:
    """Jars that are used together, under a name that messages can say."""

    name: str
    jars: tuple[Jar, ...]


_SPARK_KAFKA: tuple[Jar, ...] = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.1",
        "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.0",
        "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
    ),
)

_KAFKA_CLIENT: tuple[Jar, ...] = (
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "4.1.1",
        "00247122a572c3d3ae4eb60a50192a5811bc0181f51923d13018600f892e821d",
    ),
    Jar(
        "com.fasterxml.jackson.core",
        "jackson-annotations",
        "2.19.0",
        "ead60e9cac0e42b57092b9e2d087ff43536e9477d4486ba393037a8cc156cda7",
    ),
    Jar(
        "com.fasterxml.jackson.core",
        "jackson-core",
        "2.19.0",
        "da8e859bac94874528116a25f20c68560e4287acbf27628711b8a4f96b028430",
    ),
    Jar(
        "com.fasterxml.jackson.core",
        "jackson-databind",
        "2.19.0",
        "ceda311f476c3b18e1d2b240c94e2dcb9c8d44e70f8afa9facab88bac4ddc03a",
    ),
    Jar(
        "com.fasterxml.jackson.datatype",
        "jackson-datatype-jdk8",
        "2.19.0",
        "04f1a3f9da8155995dd00098d6847cdb9b7af67f4a3028c94031eff017c8e3e5",
    ),
    Jar(
        "com.github.luben",
        "zstd-jni",
        "1.5.6-10",
        "b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df",
    ),
    Jar(
        "org.apache.logging.log4j",
        "log4j-api",
        "2.24.3",
        "5b4a0a0cd0e751ded431c162442bdbdd53328d1f8bb2bae5fc1bbeee0f66d80f",
    ),
    Jar(
        "org.apache.logging.log4j",
        "log4j-core",
        "2.24.3",
        "7eb4084596ae25bd3c61698e48e8d0ab65a9260758884ed5cbb9c6e55c44a56a",
    ),
    Jar(
        "org.apache.logging.log4j",
        "log4j-slf4j-impl",
        "2.24.3",
        "40dec251164d1576e000968cd02e56a1125f46b91fb694a06dfa168f1335da48",
    ),
    Jar(
        "org.lz4",
        "lz4-java",
        "1.8.0",
        "d74a3334fb35195009b338a951f918203d6bbca3d1d359033dc33edd1cadc9ef",
    ),
    Jar(
        "org.slf4j",
        "slf4j-api",
        "1.7.36",
        "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0",
    ),
    Jar(
        "org.xerial.snappy",
        "snappy-java",
        "1.1.10.7",
        "4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36",
    ),
)

_BROKER: tuple[Jar, ...] = (
    Jar(
        "org.apache.kafka",
        "kafka_2.13",
        "4.1.1",
        "e89428126cc7630a802123ba27aac4442816840b66d60670226feaff65f24fd1",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-coordinator-common",
        "4.1.1",
        "2072fc1ce7e0505149bba22a463a5909a899c6235c4fa696f15c21194a7baf60",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-group-coordinator",
        "4.1.1",
        "3eb5a673b69d5992cfa86c5436f39adbf4ce284046a4c999ec6af0a8e31c5589",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-group-coordinator-api",
        "4.1.1",
        "3d1801d2329dcf7d273796a034d61e6c7e0f851f384d0afbdd3a2e6cbd17a968",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-metadata",
        "4.1.1",
        "a689665751415b6456de1ecb013042cb7ba99ac68fd8c3e8bf28e098feb43218",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-raft",
        "4.1.1",
        "4810c93d93d1935dd54de61c5ba130f501c7fe11bc49ccd3ee05ec857818a72a",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-server",
        "4.1.1",
        "9f6aff422855491aad54326eca8d604163d6d3a6507cc48ffe3ce6de73caf79a",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-server-common",
        "4.1.1",
        "207edecd8322cf6c13d76d84addea7fd0ec441dc8d698cf69df43210ccdc0a94",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-share-coordinator",
        "4.1.1",
        "e6bec53428c77bf6579321836d482542a93575f7c08e860a26c9f2c7f6059dac",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-storage",
        "4.1.1",
        "1f85b82853eaec0143efbef7e3a4d4be8929ff83a386326431e0c2d0a557e58c",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-storage-api",
        "4.1.1",
        "8c0a712472185d706c6bf5ae24bf5d84a8e396fd4745c708e6146a415f7fa7f7",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-tools",
        "4.1.1",
        "8a6939f310a61119cedaffc144119e9b2a374e32a7ec18f78e49ce5aeb71d6b0",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-tools-api",
        "4.1.1",
        "542b08fe20cf872a2d866acdff61ea338b469219dc2ebfae727a1d9ea5737e1a",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-transaction-coordinator",
        "4.1.1",
        "a261b5730ac9e3205df7af5d45180d851e9d5f729ce1275c67511a6f51f73755",
    ),
    Jar(
        "com.dynatrace.hash4j",
        "hash4j",
        "0.22.0",
        "23028a3fd006e530bf495f551083208187cafd8f80624d048eba56442f16a50e",
    ),
    Jar(
        "com.fasterxml.jackson.dataformat",
        "jackson-dataformat-csv",
        "2.19.0",
        "bec1150426b0616bb488149b952b45a0dcb16d9416b017c38f6455ad9389bc68",
    ),
    Jar(
        "com.fasterxml.jackson.dataformat",
        "jackson-dataformat-yaml",
        "2.19.0",
        "46e54dcbd39d4d12cda18ec9276e7b888e08fc765ea0c77e71662306f0d4abc4",
    ),
    Jar(
        "com.github.ben-manes.caffeine",
        "caffeine",
        "3.2.0",
        "ec411dfdf0c03f25218648ce89861630b71680e5858a9a7278ebac8e55cab3d7",
    ),
    Jar(
        "com.google.re2j",
        "re2j",
        "1.8",
        "7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7",
    ),
    Jar(
        "com.typesafe.scala-logging",
        "scala-logging_2.13",
        "3.9.5",
        "87a3017d3f43e6ace7566fe4c3d615134c6914ff871c8d64bb32ca1d996d0545",
    ),
    Jar(
        "com.yammer.metrics",
        "metrics-core",
        "2.2.0",
        "6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c",
    ),
    Jar(
        "commons-validator",
        "commons-validator",
        "1.9.0",
        "c3c14748e2d78db58df88808740711bd643b32c45ffa7b8a739f00fb467cd7d7",
    ),
    Jar(
        "net.sf.jopt-simple",
        "jopt-simple",
        "5.0.4",
        "df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28",
    ),
    Jar(
        "net.sourceforge.argparse4j",
        "argparse4j",
        "0.7.0",
        "65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56",
    ),
    Jar(
        "org.hdrhistogram",
        "HdrHistogram",
        "2.2.2",
        "22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8",
    ),
    Jar(
        "org.pcollections",
        "pcollections",
        "4.0.2",
        "2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef",
    ),
    Jar(
        "org.scala-lang",
        "scala-library",
        "2.13.16",
        "1ebb2b6f9e4eb4022497c19b1e1e825019c08514f962aaac197145f88ed730f1",
    ),
    Jar(
        "org.yaml",
        "snakeyaml",
        "2.4",
        "ef779af5d29a9dde8cc70ce0341f5c6f7735e23edff9685ceaa9d35359b7bb7f",
    ),
)

_STREAMS: tuple[Jar, ...] = (
    Jar(
        "org.apache.kafka",
        "kafka-streams",
        "4.1.1",
        "e554318dbc2b07461f714be32bb324744ba993eb7a49f938792beff577d7044b",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-streams-test-utils",
        "4.1.1",
        "6c86280a922f19b43a62b5fc10016e51732fe48b516a23ed02932c0cd220ab99",
    ),
    Jar(
        "org.rocksdb",
        "rocksdbjni",
        "9.7.3",
        "5ca63e0e955f101f7af1c1fb8ce260b5d3a5701cea7d8c2852b9d56031a57221",
    ),
)

SPARK_KAFKA = JarSet("Spark's Kafka source", _SPARK_KAFKA)
# The tools are in it for `kafka-consumer-groups`. Of Kafka's declared dependencies it leaves
# out some that no class was loaded from while a broker served transactions, groups and all codecs:
# jose4j (OAuth), scala-reflect, jspecify, and what commons-validator itself depends on.
BROKER = JarSet("the embedded Kafka", _KAFKA_CLIENT + _BROKER)
STREAMS = JarSet("Kafka Streams", _KAFKA_CLIENT + _STREAMS)
