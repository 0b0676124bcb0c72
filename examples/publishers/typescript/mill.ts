/**
 * A game server in TypeScript: a mill turns as fast as its lever says. Clients write the lever, and stop the mill by the
 * command "stop". ../README.md says how to run it.
 */
import { connect, headers, type Msg } from "@nats-io/transport-node";

type Value = number | number[] | string | boolean | null;
/** A state as a put describes it. Its values are our copy. */
interface Put {
  op: "put"; key: string; farewell?: string; describe?: boolean; access?: "read-only" | "read-write";
  values: { name: string; type: string; value: Value; precision?: number; min?: number; max?: number }[];
}
type Op = Put | { op: "set"; key: string; values: Record<string, Value> } | { op: "audience"; key: string; audience: { all: boolean } } | { op: "remove"; key: string };
interface Refusal { code: string; message: string }
interface Answer { epoch?: number; error?: Refusal; results?: { ok?: boolean; error?: Refusal }[] }
interface Happening { type: string; client?: string; key?: string; reason?: string; values?: Record<string, Value> }

const [space = "demo", seconds = "5"] = process.argv.slice(2), pause = 1000 * Number(seconds), tick = 50;
const nc = await connect({ servers: process.env.NATS_URL ?? "127.0.0.1:4222", maxReconnectAttempts: -1, pingInterval: 5000 });
const mill: Put = { op: "put", key: "mill", farewell: "the mill is gone", describe: true, values: [{ name: "angle", type: "float32", value: 0, precision: 0.1 }] };
const lever: Put = { op: "put", key: "lever", describe: true, access: "read-write", values: [{ name: "speed", type: "float32", value: 6, min: 0, max: 90 }] };
const states = [mill, lever], angle = mill.values[0]!, speed = lever.values[0]!;

const publish = (op: Op): void => nc.publish(`dnp.v1.publish.${space}`, JSON.stringify(op));
async function ask(ops: Op[], atomic: boolean): Promise<Answer> {
  const answer = (await nc.request(`dnp.v1.publish.${space}`, JSON.stringify({ ops, atomic }), { timeout: 2000 })).json<Answer>();
  if (answer.error) throw new Error(`${answer.error.code}: ${answer.error.message}`);
  return answer;
}

/** Tells the relay what it may lack. The relay may know newer writes of clients, so it gets values of the lever only if it has no lever. */
async function tell(): Promise<void> {
  const { results } = await ask(states.map((s): Op => s.access === "read-write" ? { op: "audience", key: s.key, audience: { all: true } } : s), false);
  const lacking = states.filter((_, i) => results?.[i]?.error);
  if (lacking.length > 0) await ask(lacking, true);
}

let up = true, wake = (): void => {};
async function tellForever(): Promise<void> {
  while (!nc.isClosed()) {
    const woken = new Promise<void>((resolve) => { wake = resolve; });
    await tell().catch((why: Error) => console.log("not told:", why.message));
    const timer = setTimeout(() => wake(), pause); // a message may be lost without a sign, the event reassert too
    await woken;
    clearTimeout(timer);
  }
}
async function watchConnection(): Promise<void> {
  for await (const { type } of nc.status()) {
    if (type === "disconnect") up = false;
    if (type === "reconnect") { up = true; wake(); }
  }
}
async function events(): Promise<void> {
  for await (const m of nc.subscribe(`dnp.v1.event.${space}`)) {
    const e = m.json<Happening>();
    if (e.type === "reassert") wake();
    if (e.type === "joined" || e.type === "left") console.log(e.client, e.type, e.reason ?? "");
    if (e.type !== "changed" || e.key !== lever.key) continue;
    speed.value = e.values?.speed ?? speed.value;
    console.log(e.client, "set the lever to", speed.value);
  }
}
function command(m: Msg): void {
  const code = headers();
  if (m.headers?.get("Dnp-Command") !== "stop") {
    code.set("Dnp-Code", "unknown_command");
    m.respond("the lever knows stop", { headers: code });
    return;
  }
  m.respond(`was ${speed.value}`);
  publish({ op: "set", key: lever.key, values: { speed: speed.value = 0 } });
}

nc.subscribe(`dnp.v1.command.${space}.${lever.key}`, { queue: "mill", callback: (err, m) => err ? console.log(err.message) : command(m) });
const turning = setInterval(() => {
  angle.value = (Number(angle.value) + Number(speed.value) * tick / 1000) % 360;
  if (up) publish({ op: "set", key: mill.key, values: { angle: angle.value } }); // does not wait; the next tick has a newer value
}, tick);
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, async () => {
  clearInterval(turning);
  for (const s of states) publish({ op: "remove", key: s.key });
  await nc.drain();
  process.exit();
});
const running = [tellForever(), watchConnection(), events()];
await nc.flush(); // the server knows the subscriptions
console.log("the mill turns in", space);
await Promise.all(running);
