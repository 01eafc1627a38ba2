"""As much of S3 as a snapshot location needs, over HTTP: objects are files below a directory.

Real clients talk to it: what they ask for, in which order, is what an object store would see.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_numbers = itertools.count()


class S3Server(ThreadingHTTPServer):
    """Holds buckets: the directories below its own."""

    daemon_threads = True

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.directory = directory
        self.parts: dict[str, dict[int, bytes]] = {}
        self.asked: list[str] = []
        """The method and the path of every request."""

    def uri(self, bucket: str) -> str:
        """The address of a bucket, as Arrow reads it."""
        where = f"endpoint_override=127.0.0.1:{self.server_address[1]}&scheme=http&region=here"
        return f"s3://key:secret@{bucket}?{where}"


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """A server for as long as the block."""
    server = S3Server(directory)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Request(BaseHTTPRequestHandler):
    server: S3Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Nothing: tests ask for what was asked."""

    @property
    def _path(self) -> Path:
        return self.server.directory / unquote(urlsplit(self.path).path).strip("/")

    @property
    def _query(self) -> dict[str, str]:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in query.items()}

    def do_HEAD(self) -> None:
        self.server.asked.append(f"HEAD {self.path}")
        path = self._path
        is_bucket = path.parent == self.server.directory and path.is_dir()
        if not is_bucket and not path.is_file():
            self._answer(404)
        else:
            self._answer(200, size=0 if is_bucket else path.stat().st_size)

    def do_GET(self) -> None:
        self.server.asked.append(f"GET {self.path}")
        if "list-type" in self._query:
            self._answer(200, self._listing())
        elif not self._path.is_file():
            self._answer(404, _error("NoSuchKey"))
        else:
            data = self._path.read_bytes()
            asked = self.headers.get("Range")
            if asked is None:
                self._answer(200, data)
                return
            first, _, last = asked.removeprefix("bytes=").partition("-")
            part = data[int(first) : int(last) + 1 if last else None]
            where = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
            self._answer(206, part, headers={"Content-Range": where})

    def do_PUT(self) -> None:
        self.server.asked.append(f"PUT {self.path}")
        data, query = self._body(), self._query
        if "uploadId" in query:
            self.server.parts[query["uploadId"]][int(query["partNumber"])] = data
        elif urlsplit(self.path).path.endswith("/"):
            self._path.mkdir(parents=True, exist_ok=True)
        else:
            self._write(data)
        self._answer(200, headers={"ETag": '"x"'})

    def do_POST(self) -> None:
        self.server.asked.append(f"POST {self.path}")
        query, body = self._query, self._body()
        if "uploads" in query:
            upload = f"upload-{next(_numbers)}"
            self.server.parts[upload] = {}
            self._answer(
                200, _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
            )
        elif "uploadId" in query:
            parts = self.server.parts.pop(query["uploadId"])
            self._write(b"".join(data for _, data in sorted(parts.items())))
            self._answer(200, _xml("CompleteMultipartUploadResult", "<ETag>x</ETag>"))
        else:
            self._answer(501, _error(f"NotImplemented {len(body)}"))

    def do_DELETE(self) -> None:
        self.server.asked.append(f"DELETE {self.path}")
        self._path.unlink(missing_ok=True)
        self._answer(204)

    def _write(self, data: bytes) -> None:
        """An object appears whole."""
        path = self._path
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.server.directory / f".draft-{next(_numbers)}"
        draft.write_bytes(data)
        draft.replace(path)

    def _listing(self) -> bytes:
        query, bucket = self._query, self._path
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        found, common = "", set()
        for path in sorted(bucket.rglob("*")):
            # A directory stands for the empty object by which clients of S3 make one.
            key = str(path.relative_to(bucket)) + ("/" if path.is_dir() else "")
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                common.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            size = path.stat().st_size if path.is_file() else 0
            found += f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
            found += "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
        found += "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in common
        )
        count = found.count("<Contents>") + len(common)
        return _xml(
            "ListBucketResult",
            f"<KeyCount>{count}</KeyCount><IsTruncated>false</IsTruncated>{found}",
        )

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = self._chunks()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return data
        whole = b""
        while data:
            head, _, data = data.partition(b"\r\n")
            size = int(head.partition(b";")[0], 16)
            if size == 0:
                break
            whole, data = whole + data[:size], data[size + 2 :]
        return whole

    def _chunks(self) -> bytes:
        data = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return data

    def _answer(
        self,
        status: int,
        data: bytes = b"",
        *,
        size: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(data) if size is None else size))
        self.end_headers()
        self.wfile.write(data)


def _xml(name: str, inner: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{name}>{inner}</{name}>'.encode()


def _error(code: str) -> bytes:
    return _xml("Error", f"<Code>{code}</Code><Message>{code}</Message>")
