// What a page notices of nodes, spaces and sessions.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client, Node, Space } from "../src/api.js";
import { Watch } from "../src/watch.js";

const node = (name: string, more: Partial<Node> = {}): Node => ({ node: name, role: "edge", ready: true, uptime_ms: 5_000, clients: 3, ...more });
const client = (session: string, edge: string) => ({ session, client: `c-${session}`, edge }) as Client;
const told = (w: Watch) => w.events.splice(0).map(({ ts, ...e }) => e);

test("an edge that dies is gone after two answers, stays in the list, and comes back", () => {
  const w = new Watch();
  w.nodes([node("a"), node("b")], 0);
  assert.deepEqual(told(w), [], "what is there at first is no event");
  w.nodes([node("b")], 1_000);
  assert.deepEqual(told(w), [], "it may have missed a question");
  assert.deepEqual(w.all(1_000).map((n) => [n.node, n.gone_ms]), [["a", undefined], ["b", undefined]]);
  w.nodes([node("b")], 2_000);
  assert.deepEqual(told(w), [{ type: "edge gone", node: "a", clients: 3 }]);
  assert.deepEqual(w.all(5_000)[0], { node: "a", role: "edge", gone_ms: 3_000 }, "nothing that it once said is shown");
  w.nodes([node("a", { uptime_ms: 1 }), node("b")], 62_000);
  assert.deepEqual(told(w), [{ type: "edge is back", node: "a", after: "1 min 0 s" }]);
  w.nodes([node("b")], 63_000);
  w.nodes([node("b")], 64_000);
  w.nodes([node("b")], 64_001 + 5 * 60_000);
  assert.deepEqual(w.all(400_000).map((n) => n.node), ["b"], "after a while the list forgets it");
});

test("nodes come, fall silent, restart and drain", () => {
  const w = new Watch();
  w.nodes([node("a")], 0);
  w.nodes([node("a"), node("r", { role: "relay" })], 1);
  w.nodes([node("a", { silent: true }), node("r", { role: "relay", uptime_ms: 10 })], 2);
  w.nodes([node("a", { draining: true }), node("r", { role: "relay" })], 3);
  w.nodes([node("a", { draining: true }), node("r", { role: "relay" })], 4);
  assert.deepEqual(told(w), [
    { type: "relay came", node: "r" }, { type: "edge silent", node: "a" }, { type: "relay restarted", node: "r" }, { type: "edge answers again", node: "a" }, { type: "edge drains", node: "a", clients: 3 },
  ]);
});

test("what a node needs goes away, and comes back", () => {
  const w = new Watch();
  w.nodes([node("a")], 0);
  w.nodes([node("a", { missing: ["log", "redis"] })], 1);
  w.nodes([node("a", { missing: ["log"] })], 2);
  w.nodes([node("a", { silent: true })], 3);
  w.nodes([node("a", { missing: ["log"] })], 4);
  assert.deepEqual(told(w), [
    { type: "edge lost", node: "a", what: "log, redis" }, { type: "edge has again", node: "a", what: "redis" },
    { type: "edge silent", node: "a" }, { type: "edge answers again", node: "a" },
  ], "a silent node says nothing of what it has");
});

test("spaces move between relays, and sessions between edges", () => {
  const w = new Watch();
  const space = (holder: string) => ({ space: "s", holder }) as Space;
  w.spaces([space("r1")], 0);
  w.spaces([space("r2")], 1);
  w.clients("s", [client("1", "a"), client("2", "a"), client("3", "b")], 2);
  w.clients("s", [client("1", "b"), client("2", "b"), client("3", "b"), client("4", "a")], 3);
  w.clients("t", [client("1", "c")], 4);
  assert.deepEqual(told(w), [
    { type: "space moved", space: "s", from: "r1", to: "r2" }, { type: "2 sessions moved", space: "s", from: "a", to: "b", clients: ["c-1", "c-2"] },
  ], "another space has other sessions");
});

test("what is kept has bounds", () => {
  const w = new Watch();
  w.nodes([], 0);
  for (let i = 0; i < 3_000; i++) w.nodes([node(`n${i}`)], i);
  assert.equal(w.events.length, 500);
});
