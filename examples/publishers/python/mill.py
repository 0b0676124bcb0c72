"""A game server in Python: a mill turns as fast as its lever says. Clients write the lever, and stop the mill by the
command "stop". ../README.md says how to run it."""
import asyncio
import json
import os
import signal
import sys

import nats
import nats.errors

SPACE = sys.argv[1] if len(sys.argv) > 1 else "demo"
PAUSE = float(sys.argv[2]) if len(sys.argv) > 2 else 5  # seconds, as TICK
TICK = 0.05

# States as a put describes them. Their values are our copy.
MILL = {"op": "put", "key": "mill", "farewell": "the mill is gone", "describe": True,
        "values": [{"name": "angle", "type": "float32", "value": 0, "precision": 0.1}]}
LEVER = {"op": "put", "key": "lever", "describe": True, "access": "read-write",
         "values": [{"name": "speed", "type": "float32", "value": 6, "min": 0, "max": 90}]}
STATES = [MILL, LEVER]
angle, speed = MILL["values"][0], LEVER["values"][0]


class Mill:
    def __init__(self, nc, wake):
        self.nc, self.wake = nc, wake

    async def publish(self, op):
        await self.nc.publish(f"dnp.v1.publish.{SPACE}", json.dumps(op).encode())

    async def ask(self, ops, atomic):
        body = json.dumps({"ops": ops, "atomic": atomic}).encode()
        answer = json.loads((await self.nc.request(f"dnp.v1.publish.{SPACE}", body, timeout=2)).data)
        if "error" in answer:
            raise ValueError("{code}: {message}".format(**answer["error"]))
        return answer

    async def tell(self):
        """Tell the relay what it may lack. The relay may know newer writes of clients, so it gets values of the lever
        only if it has no lever."""
        known = {"op": "audience", "key": "lever", "audience": {"all": True}}
        answer = await self.ask([known if s is LEVER else s for s in STATES], False)
        lacking = [s for s, result in zip(STATES, answer["results"]) if "error" in result]
        if lacking:
            await self.ask(lacking, True)

    async def tell_forever(self):
        while True:
            self.wake.clear()
            try:
                await self.tell()
            except (nats.errors.Error, ValueError) as why:
                print("not told:", why, flush=True)
            try:  # a message may be lost without a sign, the event reassert too
                await asyncio.wait_for(self.wake.wait(), PAUSE)
            except asyncio.TimeoutError:
                pass

    async def turn(self):
        while True:
            await asyncio.sleep(TICK)
            angle["value"] = (angle["value"] + speed["value"] * TICK) % 360
            if self.nc.is_connected:  # does not wait for the relay; the next tick has a newer value
                await self.publish({"op": "set", "key": "mill", "values": {"angle": angle["value"]}})

    async def event(self, message):
        e = json.loads(message.data)
        if e["type"] == "reassert":
            self.wake.set()
        elif e["type"] in ("joined", "left"):
            print(e["client"], e["type"], e.get("reason", ""), flush=True)
        elif e["type"] == "changed" and e["key"] == "lever":
            speed["value"] = e["values"]["speed"]
            print(e["client"], "set the lever to", speed["value"], flush=True)

    async def command(self, message):
        if (message.headers or {}).get("Dnp-Command") != "stop":
            await self.nc.publish(message.reply, b"the lever knows stop", headers={"Dnp-Code": "unknown_command"})
            return
        await message.respond(f"was {speed['value']}".encode())
        speed["value"] = 0
        await self.publish({"op": "set", "key": "lever", "values": {"speed": 0}})


async def main():
    wake, ended = asyncio.Event(), asyncio.Event()
    for s in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(s, ended.set)

    async def connected():
        wake.set()

    nc = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), max_reconnect_attempts=-1,
                            ping_interval=5, reconnected_cb=connected)
    mill = Mill(nc, wake)
    await nc.subscribe(f"dnp.v1.event.{SPACE}", cb=mill.event)
    await nc.subscribe(f"dnp.v1.command.{SPACE}.lever", queue="mill", cb=mill.command)
    await nc.flush()  # the server knows the subscriptions
    print("the mill turns in", SPACE, flush=True)
    tasks = [asyncio.create_task(c) for c in (mill.tell_forever(), mill.turn(), ended.wait())]
    done, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in running:
        task.cancel()
    for s in STATES:
        await mill.publish({"op": "remove", "key": s["key"]})
    await nc.drain()
    for task in done:
        task.result()  # raises what ended turn or tell_forever


asyncio.run(main())
