/** The client against the scripted edge of `dnpctl conform`; ../CONFORMANCE.md says what the program has to do. */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { connect, type Client, type State } from "../src/node.js";
import type { Value } from "../src/value.js";
import { hex } from "./bytes.js";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const skip = spawnSync("go", ["version"]).status === 0 ? false : "go is missing, which builds dnpctl";

/** obey does what the scripted edge asks for. */
function obey(client: Client, own: Map<string, State>, text: string): void {
  const [word, ...args] = text.split(" ");
  const rest = args.join(" ");
  const find = (key: string): State | undefined => client.states.get(key) ?? [...own.values()].find((s) => s.key === key && s.linked);
  switch (word) {
    case "echo":
      return client.send(rest);
    case "once":
      return void client.sendUnreliable(rest);
    case "count":
      return client.send(`count ${text.length}`);
    case "long":
      return client.send(Uint8Array.from({ length: Number(rest) }, (_, i) => i % 251));
    case "burst":
      for (let i = 0; i < Number(rest); i++) client.send(`burst ${i}`);
      return;
    case "set":
      return void find(args[0]!)!.set(Number(args[1]), Number(args[2]));
    case "tell": {
      const state = find(rest);
      return client.send(`${rest} ${state ? JSON.stringify(Array.from({ length: state.length }, (_, i) => told(state, i))) : "null"}`);
    }
    case "names": {
      const state = find(rest);
      const names = state && [0, 1].map((i) => ["hp", ""].find((name) => named(state, name) === i));
      return client.send(`${rest} ${names ? JSON.stringify(names) : "null"}`);
    }
    case "offer":
      own.set(rest, client.offer(rest, [{ type: "uint16", value: 7 }, { type: "string", value: "Ada" }]));
      return;
    case "withdraw":
      client.withdraw(own.get(rest)!);
      own.delete(rest);
      return;
    case "close":
      client.close();
  }
}

function named(state: State, name: string): number | undefined {
  try {
    return state.layout.index(name);
  } catch {
    return undefined;
  }
}

/** told is a value as the edge compares it: 64-bit integers as digits, data as hex, components in an array. */
function told(state: State, i: number): unknown {
  const value: Value = state.get(i);
  if (state.layout.types[i]!.kind === "data") return hex(value as Uint8Array).replaceAll(" ", "");
  if (typeof value === "number" || typeof value === "string") return value;
  if (typeof value === "bigint") return String(value);
  return Array.from(value as ArrayLike<number | bigint>, (c) => (typeof c === "bigint" ? String(c) : c));
}

test("the client keeps the rules of the protocol", { skip, timeout: 240_000 }, async (t) => {
  execFileSync("go", ["build", "-o", "bin/", "./cmd/dnpctl"], { cwd: root, stdio: "inherit" });
  const edge = spawn("bin/dnpctl", ["conform", "--listen", "127.0.0.1:0", "--timeout", "30s"], { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(edge, "exit");
  let client: Client | undefined;
  const lines: string[] = [];
  try {
    for await (const line of createInterface({ input: edge.stdout })) {
      lines.push(line);
      const url = /udp:\/\/[0-9.:]+/.exec(line)?.[0];
      if (!url || client) continue;
      const own = new Map<string, State>();
      const c = (client = connect(url, { reconnect: false }));
      c.on("message", (data) => obey(c, own, new TextDecoder().decode(data)));
    }
    const [code] = (await ended) as [number];
    t.diagnostic(lines.at(-1)!);
    assert.equal(code, 0, lines.join("\n"));
  } finally {
    client?.close();
    edge.kill();
  }
});
