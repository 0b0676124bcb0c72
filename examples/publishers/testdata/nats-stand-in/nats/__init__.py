"""A stand-in for the part of nats-py that ../../../python/mill.py uses, with its names and arguments, for machines
that cannot install nats-py. It does not connect again, and it is for tests only."""
import asyncio
import itertools
import json
import urllib.parse

from . import errors


class Msg:
    def __init__(self, client, subject, reply, data, headers):
        self._client, self.subject, self.reply, self.data, self.headers = client, subject, reply, data, headers

    async def respond(self, data):
        await self._client.publish(self.reply, data)


class Client:
    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._heard, self._numbers, self._pongs = {}, itertools.count(1), asyncio.Queue()
        self._reading = asyncio.create_task(self._read())
        self.is_connected = True

    async def publish(self, subject, payload=b"", reply="", headers=None):
        verb, sizes, body = "PUB", f"{len(payload)}", payload
        if headers:
            head = "NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
            verb, sizes, body = "HPUB", f"{len(head)} {len(head) + len(payload)}", head.encode() + payload
        self._writer.write(f"{verb} {subject} {reply} {sizes}\r\n".encode() + body + b"\r\n")

    async def subscribe(self, subject, queue="", cb=None):
        number = str(next(self._numbers))
        self._heard[number] = cb
        self._writer.write(f"SUB {subject} {queue} {number}\r\n".encode())
        return number

    async def request(self, subject, payload=b"", timeout=0.5):
        answer = asyncio.get_running_loop().create_future()

        async def heard(message):
            if not answer.done():
                answer.set_result(message)

        inbox = f"_INBOX.{id(self)}.{next(self._numbers)}"
        number = await self.subscribe(inbox, cb=heard)
        await self.publish(subject, payload, reply=inbox)
        try:
            message = await asyncio.wait_for(answer, timeout)
        except asyncio.TimeoutError:
            raise errors.TimeoutError from None
        finally:
            del self._heard[number]
            self._writer.write(f"UNSUB {number}\r\n".encode())
        if (message.headers or {}).get("Status") == "503":
            raise errors.NoRespondersError
        return message

    async def flush(self, timeout=10):
        self._writer.write(b"PING\r\n")
        await asyncio.wait_for(self._pongs.get(), timeout)

    async def drain(self):
        await self.flush()
        self._reading.cancel()
        self._writer.close()

    async def _read(self):
        while line := (await self._reader.readline()).decode():
            words = line.split()
            if words[0] == "PING":
                self._writer.write(b"PONG\r\n")
            elif words[0] == "PONG":
                self._pongs.put_nowait(None)
            elif words[0] == "-ERR":
                raise errors.Error(line)
            elif words[0] in ("MSG", "HMSG"):
                await self._message(words)

    async def _message(self, words):
        body = (await self._reader.readexactly(int(words[-1]) + 2))[:-2]
        head = int(words[-2]) if words[0] == "HMSG" else 0
        fixed = 5 if head else 4
        reply = words[3] if len(words) > fixed else ""
        headers = _headers(body[:head].decode()) if head else None
        if heard := self._heard.get(words[2]):
            await heard(Msg(self, words[1], reply, body[head:], headers))


def _headers(text):
    first, *lines = text.strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    if status := first.removeprefix("NATS/1.0").strip():
        headers["Status"] = status.split()[0]
    return headers


async def connect(servers, max_reconnect_attempts=60, ping_interval=120, reconnected_cb=None):
    url = urllib.parse.urlsplit(servers)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    await reader.readline()  # INFO
    options = {"verbose": False, "headers": True, "no_responders": True, "lang": "python3", "protocol": 1}
    writer.write(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
    return Client(reader, writer)
