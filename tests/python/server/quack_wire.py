"""An independent Quack client in plain Python: message codec (protocol versions 1 and 3) and a session over http.client.

It shares no code with the server, so what both agree on is the protocol and not a common mistake.
"""

from __future__ import annotations

import datetime
import decimal
import http.client
import ssl
import struct
import uuid as uuid_module
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

UNSET = 2**64 - 1
OBJECT_END = 0xFFFF

CONNECTION_REQUEST = 1
CONNECTION_RESPONSE = 2
PREPARE_REQUEST = 3
PREPARE_RESPONSE = 4
FETCH_REQUEST = 7
FETCH_RESPONSE = 8
SEND_DATA_REQUEST = 9
APPEND_REQUEST = 9
SUCCESS_RESPONSE = 10
DISCONNECT = 11
CANCEL_REQUEST = 12
SEND_DATA_RESPONSE = 14
ACKNOWLEDGEMENT = 15
HEARTBEAT_REQUEST = 16
ERROR_RESPONSE = 100

FIXED_WIDTH = {
    10: "<?", 11: "<b", 12: "<h", 13: "<i", 14: "<q", 15: "<i", 16: "<q", 17: "<q", 18: "<q", 19: "<q", 20: "<q",
    22: "<f", 23: "<d", 28: "<B", 29: "<H", 30: "<I", 31: "<Q", 32: "<q", 33: "<q", 34: "<q", 35: "<q",
}  # fmt: skip
TYPE_IDS = {
    "BOOLEAN": 10, "TINYINT": 11, "SMALLINT": 12, "INTEGER": 13, "BIGINT": 14, "DATE": 15, "TIMESTAMP": 19,
    "FLOAT": 22, "DOUBLE": 23, "VARCHAR": 25, "BLOB": 26, "UTINYINT": 28, "USMALLINT": 29, "UINTEGER": 30,
    "UBIGINT": 31,
}  # fmt: skip
STRING_TYPES = (25, 26, 36, 39)


class QuackError(Exception):
    """An ERROR_RESPONSE: message, exception type and extra info as they travelled."""

    def __init__(self, message: str, exception_type: str, extra_info: dict[str, str]) -> None:
        super().__init__(f"{exception_type}: {message}" if exception_type else message)
        self.message = message
        self.exception_type = exception_type
        self.extra_info = extra_info

    @property
    def code(self) -> str:
        """The stable code of quack-duckdb, empty when the error has none."""
        return self.extra_info.get("quack_code", "")


class HttpError(Exception):
    """A reply that is not 200."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(f"HTTP {status} {what}")
        self.status = status
        self.what = what


class Writer:
    """Appends the object format: field ids, LEB128 numbers, length-prefixed bytes."""

    def __init__(self) -> None:
        self.out = bytearray()

    def field(self, field_id: int) -> Writer:
        self.out += struct.pack("<H", field_id)
        return self

    def unsigned(self, value: int) -> Writer:
        while True:
            byte = value & 0x7F
            value >>= 7
            self.out.append(byte | (0x80 if value else 0))
            if not value:
                return self

    def signed(self, value: int) -> Writer:
        while True:
            byte = value & 0x7F
            value >>= 7
            last = (value == 0 and not byte & 0x40) or (value == -1 and byte & 0x40)
            self.out.append(byte if last else byte | 0x80)
            if last:
                return self

    def data(self, value: bytes) -> Writer:
        self.unsigned(len(value))
        self.out += value
        return self

    def string(self, value: str) -> Writer:
        return self.data(value.encode())

    def hugeint(self, value: int) -> Writer:
        value &= 2**128 - 1
        upper = value >> 64
        self.signed(upper - 2**64 if upper >= 2**63 else upper)
        return self.unsigned(value & UNSET)

    def end(self) -> Writer:
        return self.field(OBJECT_END)


class Reader:
    """Reads what Writer writes."""

    def __init__(self, data: bytes) -> None:
        self.bytes = data
        self.offset = 0

    def raw(self, size: int) -> bytes:
        if self.offset + size > len(self.bytes):
            raise ValueError(
                f"truncated message: {size} bytes wanted at {self.offset} of {len(self.bytes)}"
            )
        out = self.bytes[self.offset : self.offset + size]
        self.offset += size
        return out

    def peek_field(self) -> int:
        return int(struct.unpack_from("<H", self.bytes, self.offset)[0])

    def has(self, field_id: int) -> bool:
        if self.peek_field() != field_id:
            return False
        self.offset += 2
        return True

    def expect(self, field_id: int) -> None:
        if not self.has(field_id):
            raise ValueError(
                f"field {field_id} expected at {self.offset}, found {self.peek_field()}"
            )

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def signed(self) -> int:
        value = shift = 0
        while True:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if byte & 0x40 else value

    def data(self) -> bytes:
        return self.raw(self.unsigned())

    def string(self) -> str:
        return self.data().decode()

    def hugeint(self) -> int:
        upper = self.signed()
        return (upper << 64) | self.unsigned()

    def end(self) -> None:
        self.expect(OBJECT_END)


@dataclass
class Type:
    """A LogicalType: id and what its type info holds."""

    id: int
    width: int = 0
    scale: int = 0
    children: list[tuple[str, Type]] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    size: int = 0

    @staticmethod
    def of(name: str) -> Type:
        return Type(TYPE_IDS[name])


def read_type(reader: Reader) -> Type:
    reader.expect(100)
    result = Type(reader.unsigned())
    if reader.has(101) and reader.raw(1)[0]:
        read_type_info(reader, result)
    reader.end()
    return result


def read_type_info(reader: Reader, result: Type) -> None:
    reader.expect(100)
    kind = reader.unsigned()
    if reader.has(101):
        reader.string()
    if kind == 2:
        result.width = reader.unsigned() if reader.has(200) else 0
        result.scale = reader.unsigned() if reader.has(201) else 0
    elif kind == 3 and reader.has(200):
        reader.string()
    elif kind == 4:
        reader.expect(200)
        result.children = [("element", read_type(reader))]
    elif kind == 5 and reader.has(200):
        for _ in range(reader.unsigned()):
            reader.expect(0)
            name = reader.string()
            reader.expect(1)
            result.children.append((name, read_type(reader)))
            reader.end()
    elif kind == 6:
        reader.expect(200)
        reader.unsigned()
        reader.expect(201)
        result.values = [reader.string() for _ in range(reader.unsigned())]
    elif kind == 9:
        reader.expect(200)
        result.children = [("element", read_type(reader))]
        reader.expect(201)
        result.size = reader.unsigned()
    reader.end()


def read_chunk(reader: Reader) -> tuple[list[Type], list[list[Any]]]:
    """One DataChunk object, up to and including its end mark: types and columns."""
    reader.expect(100)
    rows = reader.unsigned()
    reader.expect(101)
    types = [read_type(reader) for _ in range(reader.unsigned())]
    reader.expect(102)
    count = reader.unsigned()
    assert count == len(types)
    columns = []
    for column_type in types:
        columns.append(read_vector(reader, column_type, rows))
        reader.end()
    reader.end()
    return types, columns


def read_vector(reader: Reader, column_type: Type, rows: int) -> list[Any]:
    kind = reader.unsigned() if reader.has(90) else 0
    if kind == 2:
        return read_flat(reader, column_type, 1) * rows
    if kind == 3:
        reader.expect(91)
        selection = struct.unpack(f"<{rows}I", reader.data())
        reader.expect(92)
        dictionary = read_flat(reader, column_type, reader.unsigned())
        return [dictionary[i] for i in selection]
    if kind == 4:
        reader.expect(91)
        start = reader.signed()
        reader.expect(92)
        increment = reader.signed()
        return [start + i * increment for i in range(rows)]
    assert kind == 0, f"vector type {kind}"
    return read_flat(reader, column_type, rows)


def read_flat(reader: Reader, column_type: Type, rows: int) -> list[Any]:
    if reader.has(99):
        reader.unsigned()
    reader.expect(100)
    valid = [True] * rows
    if reader.raw(1)[0]:
        reader.expect(101)
        mask = reader.data()
        valid = [bool(mask[i // 8] >> (i % 8) & 1) for i in range(rows)]
    values = read_values(reader, column_type, rows)
    return [value if ok else None for value, ok in zip(values, valid, strict=True)]


def read_values(reader: Reader, column_type: Type, rows: int) -> list[Any]:
    type_id = column_type.id
    if type_id in STRING_TYPES:
        return read_strings(reader, type_id, rows)
    if type_id in (100, 107, 110):
        reader.expect(103)
        assert reader.unsigned() == len(column_type.children)
        children = []
        for _, child_type in column_type.children:
            children.append(read_vector(reader, child_type, rows))
            reader.end()
        names = [name for name, _ in column_type.children]
        if not children:
            return [{} for _ in range(rows)]
        return [dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)]
    if type_id in (101, 102):
        return read_lists(reader, column_type, rows)
    if type_id == 108:
        reader.expect(103)
        size = reader.unsigned()
        reader.expect(104)
        flat = read_vector(reader, column_type.children[0][1], rows * size)
        reader.end()
        return [flat[i * size : (i + 1) * size] for i in range(rows)]
    reader.expect(102)
    return decode_fixed(column_type, reader.data(), rows)


def read_lists(reader: Reader, column_type: Type, rows: int) -> list[Any]:
    reader.expect(104)
    size = reader.unsigned()
    reader.expect(105)
    entries = []
    for _ in range(reader.unsigned()):
        reader.expect(100)
        offset = reader.unsigned()
        reader.expect(101)
        entries.append((offset, reader.unsigned()))
        reader.end()
    assert len(entries) == rows
    reader.expect(106)
    flat = read_vector(reader, column_type.children[0][1], size)
    reader.end()
    lists: list[Any] = [flat[offset : offset + length] for offset, length in entries]
    if column_type.id == 102:
        return [{pair["key"]: pair["value"] for pair in entry} for entry in lists]
    return lists


def read_strings(reader: Reader, type_id: int, rows: int) -> list[Any]:
    def convert(value: bytes) -> Any:
        return value.decode(errors="replace") if type_id == 25 else value

    if reader.has(107):
        total = reader.unsigned()
        reader.expect(108)
        lengths = struct.unpack(f"<{rows}I", reader.data())
        reader.expect(109)
        flat = reader.data()
        assert len(flat) == total
        out, offset = [], 0
        for length in lengths:
            out.append(convert(flat[offset : offset + length]))
            offset += length
        return out
    reader.expect(102)
    count = reader.unsigned()
    assert count == rows
    return [convert(reader.data()) for _ in range(rows)]


def decode_fixed(column_type: Type, data: bytes, rows: int) -> list[Any]:
    type_id = column_type.id
    width = len(data) // rows if rows else 0
    if type_id in (49, 50, 54) or (type_id == 21 and width == 16):
        integers = [
            int.from_bytes(data[i * 16 : i * 16 + 16], "little", signed=type_id != 49)
            for i in range(rows)
        ]
        if type_id == 54:
            return [uuid_module.UUID(int=(value ^ (1 << 127)) & (2**128 - 1)) for value in integers]
    elif type_id in (21, 104):
        signed = type_id == 21
        integers = [
            int.from_bytes(data[i * width : (i + 1) * width], "little", signed=signed)
            for i in range(rows)
        ]
    elif type_id == 27:
        return [struct.unpack_from("<iiq", data, i * 16) for i in range(rows)]
    elif type_id == 1:
        return [None] * rows
    else:
        unpacked = [value for (value,) in struct.iter_unpack(FIXED_WIDTH[type_id], data)]
        if type_id == 15:
            return [to_date(value) for value in unpacked]
        if type_id == 19:
            return [to_timestamp(value) for value in unpacked]
        return unpacked
    if type_id == 21:
        return [decimal.Decimal(value).scaleb(-column_type.scale) for value in integers]
    if type_id == 104:
        return [column_type.values[value] for value in integers]
    return integers


def to_date(days: int) -> Any:
    """A date, or the number itself where Python's dates end."""
    try:
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=days)
    except OverflowError:
        return days


def to_timestamp(microseconds: int) -> Any:
    """A timestamp, or the number itself where Python's end."""
    try:
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=microseconds)
    except OverflowError:
        return microseconds


def write_chunk(types: list[Type], columns: list[list[Any]]) -> bytes:
    """A DataChunk object of plain types in flat vectors, strings in the list form that both versions read."""
    rows = len(columns[0])
    writer = Writer().field(100).unsigned(rows).field(101).unsigned(len(types))
    for column_type in types:
        writer.field(100).unsigned(column_type.id).end()
    writer.field(102).unsigned(len(types))
    for column_type, values in zip(types, columns, strict=True):
        write_vector(writer, column_type, values)
        writer.end()
    return bytes(writer.end().out)


def write_vector(writer: Writer, column_type: Type, values: list[Any]) -> None:
    has_null = any(value is None for value in values)
    writer.field(100).out.append(1 if has_null else 0)
    if has_null:
        mask = bytearray((len(values) + 63) // 64 * 8)
        for i, value in enumerate(values):
            if value is not None:
                mask[i // 8] |= 1 << (i % 8)
        writer.field(101).data(bytes(mask))
    writer.field(102)
    if column_type.id in STRING_TYPES:
        writer.unsigned(len(values))
        for value in values:
            encoded = (
                b"\x80" if value is None else value.encode() if isinstance(value, str) else value
            )
            writer.data(encoded)
        return
    packer = struct.Struct(FIXED_WIDTH[column_type.id])
    writer.data(b"".join(packer.pack(0 if value is None else value) for value in values))


def header(kind: int, connection_id: str = "") -> Writer:
    writer = Writer().field(1).unsigned(kind)
    if connection_id:
        writer.field(2).string(connection_id)
    return writer.field(3).unsigned(UNSET).end()


def read_header(reader: Reader) -> tuple[int, str]:
    reader.expect(1)
    kind = reader.unsigned()
    connection_id = reader.string() if reader.has(2) else ""
    if reader.has(3):
        reader.unsigned()
    reader.end()
    return kind, connection_id


def read_wrapped(reader: Reader) -> list[list[list[Any]]]:
    chunks = []
    for _ in range(reader.unsigned()):
        assert reader.raw(1)[0] == 1
        reader.expect(300)
        chunks.append(read_chunk(reader)[1])
        reader.end()
    return chunks


@dataclass
class Prepared:
    """A PREPARE_RESPONSE."""

    types: list[Type]
    names: list[str]
    needs_more: bool
    chunks: list[list[list[Any]]]
    uuid: int

    def rows(self) -> list[tuple[Any, ...]]:
        return [row for chunk in self.chunks for row in zip(*chunk, strict=True)]


def raise_error(reader: Reader) -> None:
    message = reader.string() if reader.has(1) else ""
    kind = reader.string() if reader.has(2) else ""
    extra: dict[str, str] = {}
    if reader.has(3):
        for _ in range(reader.unsigned()):
            reader.expect(0)
            key = reader.string()
            reader.expect(1)
            extra[key] = reader.string()
            reader.end()
    if reader.has(4):
        reader.raw(1)
    reader.end()
    raise QuackError(message, kind, extra)


class Session:
    """One connection id on one node; requests use one keep-alive HTTP connection."""

    def __init__(
        self,
        port: int,
        token: str = "",
        *,
        host: str = "127.0.0.1",
        version: int = 3,
        heartbeat_s: int = 60,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 60,
    ) -> None:
        self.host, self.port, self.tls, self.timeout_s = host, port, tls, timeout_s
        self.version = version
        self.http = self.open_http()
        self.reply_headers: dict[str, str] = {}
        self.connection_id = ""
        writer = header(CONNECTION_REQUEST).field(1).string(token).field(2).string("v2.0.1")
        writer.field(3).string("linux_amd64").field(4).unsigned(version).field(5).unsigned(version)
        if version == 3:
            writer.field(7).unsigned(heartbeat_s)
        try:
            reader, self.connection_id = self.call_raw(writer.end(), CONNECTION_RESPONSE)
        except BaseException:
            self.http.close()
            raise
        reader.expect(1)
        self.server_version = reader.string()
        reader.expect(2)
        self.server_platform = reader.string()
        reader.expect(3)
        self.quack_version = reader.unsigned()
        self.lease_s = reader.unsigned() if reader.has(4) else 0
        reader.end()

    def open_http(self) -> http.client.HTTPConnection:
        if self.tls is not None:
            return http.client.HTTPSConnection(
                self.host, self.port, context=self.tls, timeout=self.timeout_s
            )
        return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)

    def post(
        self, body: bytes, headers: dict[str, str] | None = None, http_connection: Any = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http_connection or self.http
        connection.request(
            "POST", "/quack", body, {"Content-Type": "application/octet-stream", **(headers or {})}
        )
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()

    def call_raw(
        self,
        writer: Writer,
        expected: int,
        headers: dict[str, str] | None = None,
        http_connection: Any = None,
    ) -> tuple[Reader, str]:
        status, reply_headers, body = self.post(bytes(writer.out), headers, http_connection)
        self.reply_headers = reply_headers
        if status != 200:
            raise HttpError(status, reply_headers.get("EXCEPTION_WHAT", ""))
        reader = Reader(body)
        kind, connection_id = read_header(reader)
        if kind == ERROR_RESPONSE:
            raise_error(reader)
        assert kind == expected, f"message type {expected} expected, got {kind}"
        return reader, connection_id

    def message(self, kind: int) -> Writer:
        return header(kind, self.connection_id)

    def prepare(
        self,
        sql: str,
        *,
        query_uuid: int | None = None,
        inline_rows: int | None = None,
        headers: dict[str, str] | None = None,
        http_connection: Any = None,
    ) -> Prepared:
        if query_uuid is None:
            query_uuid = uuid_module.uuid4().int >> 1
        writer = self.message(PREPARE_REQUEST).field(1).string(sql)
        if self.version == 3:
            writer.field(2).hugeint(query_uuid)
            if inline_rows is not None:
                writer.field(3).unsigned(inline_rows)
        reader, _ = self.call_raw(writer.end(), PREPARE_RESPONSE, headers, http_connection)
        types = [read_type(reader) for _ in range(reader.unsigned())] if reader.has(1) else []
        names = [reader.string() for _ in range(reader.unsigned())] if reader.has(2) else []
        needs_more = bool(reader.raw(1)[0]) if reader.has(3) else False
        chunks = read_wrapped(reader) if reader.has(4) else []
        reader.expect(5)
        result = Prepared(types, names, needs_more, chunks, reader.hugeint())
        reader.end()
        return result

    def fetch(
        self, query_uuid: int, batch: int = 0, ack: int = 0, http_connection: Any = None
    ) -> tuple[list[list[list[Any]]], int | None, int | None]:
        """Chunks, batch index, total batches (terminal answers only)."""
        writer = self.message(FETCH_REQUEST).field(1).hugeint(query_uuid)
        if self.version == 3:
            writer.field(2).unsigned(batch).field(3).unsigned(ack)
        reader, _ = self.call_raw(writer.end(), FETCH_RESPONSE, None, http_connection)
        if self.version == 1:
            chunks = read_wrapped(reader) if reader.has(1) else []
            reader.expect(2)
            index = reader.unsigned()
            reader.end()
            return chunks, None if index == UNSET else index, None
        count = reader.unsigned() if reader.has(1) else 0
        total = reader.unsigned() if reader.has(2) else None
        found = reader.unsigned() if reader.has(3) else None
        reader.end()
        chunks = [read_chunk(reader)[1] for _ in range(count)]
        assert reader.offset == len(reader.bytes)
        return chunks, found, total

    def fetch_all(self, query_uuid: int) -> Iterator[tuple[Any, ...]]:
        batch = 0
        while True:
            batch += 1
            chunks, index, total = self.fetch(query_uuid, batch, batch - 1)
            if index is None:
                assert self.version == 1 or total == batch - 1
                return
            assert index == batch
            for chunk in chunks:
                yield from zip(*chunk, strict=True)

    def query(self, sql: str, **options: Any) -> list[tuple[Any, ...]]:
        prepared = self.prepare(sql, **options)
        rows = prepared.rows()
        if prepared.needs_more:
            rows += self.fetch_all(prepared.uuid)
        return rows

    def send_data(
        self,
        stream_id: str,
        chunks: Iterable[bytes],
        *,
        batch: int | None = None,
        total: int | None = None,
        http_connection: Any = None,
    ) -> None:
        chunks = list(chunks)
        writer = self.message(SEND_DATA_REQUEST).field(1).string(stream_id)
        if chunks:
            writer.field(2).unsigned(len(chunks))
        if total is not None:
            writer.field(3).unsigned(total)
        if batch is not None:
            writer.field(4).unsigned(batch)
        writer.end()
        for chunk in chunks:
            writer.out += chunk
        self.call_raw(writer, SEND_DATA_RESPONSE, None, http_connection)[0].end()

    def append(self, schema: str, table: str, chunk: bytes) -> None:
        """APPEND of version 1."""
        writer = (
            self.message(APPEND_REQUEST).field(1).string(schema).field(2).string(table).field(3)
        )
        writer.out.append(1)
        writer.field(300).out += chunk
        self.call_raw(writer.end().end(), SUCCESS_RESPONSE)[0].end()

    def cancel(self, query_uuid: int = 0, http_connection: Any = None) -> None:
        writer = self.message(CANCEL_REQUEST).field(1).hugeint(query_uuid).end()
        self.call_raw(writer, SUCCESS_RESPONSE, None, http_connection)[0].end()

    def acknowledge(self, query_uuid: int) -> None:
        self.call_raw(
            self.message(ACKNOWLEDGEMENT).field(1).hugeint(query_uuid).end(), SUCCESS_RESPONSE
        )[0].end()

    def heartbeat(self) -> None:
        self.call_raw(self.message(HEARTBEAT_REQUEST).end(), SUCCESS_RESPONSE)[0].end()

    def disconnect(self) -> None:
        self.call_raw(self.message(DISCONNECT).end(), SUCCESS_RESPONSE)[0].end()

    def insert_stream(
        self, table: str, types: list[str], batches: list[list[list[Any]]], *, ordered: bool = True
    ) -> int:
        """INSERT INTO table from batches of columns, as the stock 2.0 client does it; returns the count."""
        stream_id = str(uuid_module.uuid4())
        columns = ", ".join(f"col{i} {name}" for i, name in enumerate(types))
        sql = (
            f"INSERT INTO {table} SELECT * FROM scan_data_from_quack_client('{stream_id}', "
            f"NULL::STRUCT({columns}), ordered := {str(ordered).lower()})"
        )
        prepared = self.prepare(sql, inline_rows=0)
        logical = [Type.of(name) for name in types]
        for index, columns_of_batch in enumerate(batches, 1):
            self.send_data(stream_id, [write_chunk(logical, columns_of_batch)], batch=index)
        self.send_data(stream_id, [], total=len(batches))
        (row,) = list(self.fetch_all(prepared.uuid))
        return int(row[0])
