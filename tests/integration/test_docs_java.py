"""The page for those who come from Kafka Streams: its Java program is the Python one beside it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from penstock.local.jars import STREAMS, classpath, ensure
from penstock.local.java import find_java

PAGE = Path(__file__).parents[2] / "docs" / "coming-from" / "kafka-streams.md"
AROUND = """
import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.*;
import static org.apache.kafka.streams.kstream.Suppressed.BufferConfig.unbounded;

public class Page {
  public static void main(String[] arguments) {
    %s
    System.out.print(builder.build().describe());
  }
}
"""


def shown(language: str) -> str:
    [code] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(code)


def test_both_programs_of_the_page_are_described_in_the_same_words(tmp_path: Path) -> None:
    source = tmp_path / "Page.java"
    source.write_text(AROUND % shown("java"))
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"]
    command = [find_java().program, *options, "-cp", classpath(ensure(STREAMS)), source]
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    names: dict[str, Any] = {}
    numbered = shown("python").replace('"monitor"', '"monitor", names="kafka_streams"')
    exec(compile(numbered, str(PAGE), "exec"), names)
    assert names["app"].describe().strip() == done.stdout.strip()
