# A client on the Python library that counts the messages of the server in examples/lap. README.md says how to run it.
import asyncio
import logging
import os
import struct
import sys

import DENetworkLibrary as dnl

logging.disable(logging.INFO)


class Count:
    next = got = stale = doubled = missed = connections = 0
    again = end = False


class Client(dnl.Connection):
    def connection_established(self):
        Count.connections += 1

    def connection_failed(self, reason):
        Count.end = True

    def connection_closed(self):
        Count.again = True
        print("closed after", Count.got, "messages")

    def create_state(self, message, read_only):
        return None

    def message_received(self, message):
        if len(message.data) != 8:
            return
        (n,) = struct.unpack("<q", bytes(message.data))
        Count.got += 1
        if n == Count.next:
            Count.next += 1
        elif n > Count.next:
            Count.missed += n - Count.next
            Count.next = n + 1
        elif Count.next - n > 30000:
            Count.stale += 1
        else:
            Count.doubled += 1


loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
client = Client()
client.connect_to(sys.argv[1])
while not Count.end:
    loop.run_until_complete(asyncio.sleep(0.05))
    if Count.again:
        Count.again = False
        client = Client()  # a new one: the old one acknowledges messages and passes on none
        client.connect_to(sys.argv[1])
print("%d messages over %d connections: %d stale, %d missed, %d doubled"
      % (Count.got, Count.connections, Count.stale, Count.missed, Count.doubled), flush=True)
os._exit(0)
