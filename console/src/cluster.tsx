import { useRef, useState } from "preact/hooks";
import { drain, useAsked, type Asked, type List, type Node, type Space } from "./api.js";
import * as format from "./format.js";
import type { Live } from "./live.js";
import { Plot, useHistory } from "./plot.js";
import { rowHeight, Table, type Column } from "./table.js";
import { EventList } from "./events.js";
import type { Watch } from "./watch.js";

/** condition says whether a node is as it should be, and how it is. */
function condition(n: Node): [fine: boolean, what: string] {
  const without = n.missing?.map((what) => format.plain(what, 60)).join(", ");
  if (n.gone_ms !== undefined) return [false, `gone for ${format.span(n.gone_ms)}`];
  if (n.silent) return [false, "does not answer"];
  if (n.draining) return [false, "leaves"];
  if (without) return [false, n.ready ? `ready, without ${without}` : `not ready: no ${without}`];
  return n.ready ? [true, "ready"] : [false, "not ready"];
}

const nodeColumns: Column<Node>[] = [
  { name: "node", width: "minmax(8rem, 3fr)", cell: (n) => <b>{format.plain(n.node, 80)}</b>, by: (n) => n.node },
  { name: "role", cell: (n) => format.plain(n.role, 20), by: (n) => n.role },
  {
    name: "condition", width: "minmax(9rem, 1.5fr)", cell: (n) => { const [fine, what] = condition(n); return fine ? what : <span class="warn" title={what}>{what}</span>; },
    by: (n) => (n.gone_ms !== undefined ? -1 : n.silent ? 0 : n.ready ? (n.missing ? 2 : 3) : 1),
  },
  { name: "version", cell: (n) => format.plain(n.version ?? "", 40), by: (n) => n.version ?? "" },
  { name: "up for", right: true, width: "minmax(6rem, 1fr)", cell: (n) => (n.uptime_ms === undefined ? "" : format.span(n.uptime_ms)), by: (n) => n.uptime_ms ?? 0 },
  { name: "shards", right: true, cell: (n) => n.shards ?? "", by: (n) => n.shards ?? -1 },
  { name: "spaces", right: true, cell: (n) => n.spaces ?? "", by: (n) => n.spaces ?? 0 },
  { name: "clients", right: true, cell: (n) => n.clients ?? "", by: (n) => n.clients ?? 0 },
  { name: "waiting", right: true, title: "Messages and tasks that wait for the workers of the node", cell: (n) => n.waiting ?? "", by: (n) => n.waiting ?? 0 },
];

interface Rated extends Space {
  rated: boolean; // there was a reading before
  rate: { publishes: number; writes: number; batches: number; bytes: number };
}

const spaceColumns: Column<Rated>[] = [
  { name: "space", width: "minmax(8rem, 3fr)", cell: (s) => <b>{format.plain(s.space, 80)}</b>, by: (s) => s.space },
  { name: "relay", cell: (s) => <>{format.plain(s.holder, 60)}{s.serving ? "" : <span class="warn"> loads</span>}</>, by: (s) => s.holder },
  { name: "epoch", right: true, width: "minmax(8rem, 1fr)", cell: (s) => s.epoch, by: (s) => s.epoch },
  { name: "held for", right: true, width: "minmax(6rem, 1fr)", cell: (s) => format.span(s.since_ms), by: (s) => s.since_ms },
  { name: "states", right: true, cell: (s) => s.states, by: (s) => s.states },
  { name: "clients", right: true, cell: (s) => s.clients, by: (s) => s.clients },
  { name: "publishes/s", right: true, cell: (s) => format.number(s.rate.publishes, 1), by: (s) => s.rate.publishes },
  { name: "writes/s", right: true, title: "Of clients", cell: (s) => format.number(s.rate.writes, 1), by: (s) => s.rate.writes },
  { name: "out", right: true, title: "From the relay to all edges together", cell: (s) => `${format.bytes(s.rate.bytes)}/s`, by: (s) => s.rate.bytes },
];

/** useRates turns counters of spaces into rates. */
function useRates(list: Space[] | undefined): Rated[] {
  const kept = useRef<{ list: Space[] | undefined; at: number; rated: Rated[] }>({ list: undefined, at: 0, rated: [] });
  if (list && list !== kept.current.list) {
    const now = performance.now();
    const seconds = (now - kept.current.at) / 1_000;
    const before = new Map((kept.current.list ?? []).map((s) => [s.space, s]));
    const rated = list.map((s): Rated => {
      const b = before.get(s.space);
      const of = (x: number, y: number | undefined) => (b && b.holder === s.holder && y !== undefined && x >= y ? (x - y) / seconds : 0);
      return { ...s, rated: b !== undefined, rate: { publishes: of(s.publishes, b?.publishes), writes: of(s.writes, b?.writes), batches: of(s.batches, b?.batches), bytes: of(s.batch_bytes, b?.batch_bytes) } };
    });
    kept.current = { list, at: now, rated };
  }
  return kept.current.rated;
}

const happenedMax = 20;

/** height returns how high a table is, so that a few rows leave room for the plots below. */
function height(rows = 0): string {
  return `${Math.min(8, Math.max(2, rows)) * rowHeight + 44}px`;
}

export function Cluster({ live, watch, nodes, edit }: { live: Live; watch: Watch; nodes: Asked<List<Node>>; edit: boolean }) {
  const [said, say] = useState("");
  const leave = ({ node }: Node) => {
    if (confirm(`Drain the edge ${node}? It hands its sessions over, or closes them if they are not durable, and ends.`)) drain(node).then((what) => say(`${node}: ${what}`), (e: Error) => say(`drain ${node}: ${e.message}`));
  };
  const operator: Column<Node>[] = [{ name: "operator", cell: (n) => (n.role === "edge" && n.ready !== undefined && !n.draining ? <button class="small" onClick={() => leave(n)}>Drain</button> : "") }];
  const spaces = useAsked<List<Space>>("api/spaces?max=500");
  const rated = useRates(spaces.value?.entries ?? undefined);
  const sum = (of: (s: Rated) => number) => rated.reduce((n, s) => n + of(s), 0);
  const known = !nodes.error && !spaces.error && nodes.value !== undefined && spaces.value !== undefined && rated.every((s) => s.rated);
  const history = useHistory("cluster", !known ? undefined : {
    publishes: sum((s) => s.rate.publishes), writes: sum((s) => s.rate.writes), bytes: sum((s) => s.rate.bytes) / 1024,
    clients: (nodes.value?.entries ?? []).reduce((n, x) => n + (x.role === "edge" ? (x.clients ?? 0) : 0), 0),
  });
  const v = history.values;
  const all = watch.all(Date.now());
  return (
    <section class="cluster">
      <h2>Nodes {nodes.error && <span class="warn">{nodes.error}</span>}</h2>
      <div class="fixed" style={{ height: height(all.length) }}><Table items={all} columns={edit ? [...nodeColumns, ...operator] : nodeColumns} id={(n) => `${n.role} ${n.node}`} empty={nodes.value ? "No node answers." : "Asking all nodes…"} /></div>
      {said && <p class="said" role="status">{format.plain(said, 400)}</p>}
      <h2>Spaces {spaces.error && <span class="warn">{spaces.error}</span>}{spaces.value?.next && <small class="faint"> the first {rated.length}</small>}</h2>
      <div class="fixed" style={{ height: height(rated.length) }}><Table items={rated} columns={spaceColumns} id={(s) => s.space} selected={live.space} select={(s) => (location.hash = `#/${s.space}/cluster`)} empty={spaces.value ? "No relay holds a space." : "Asking all relays…"} /></div>
      <div class="plots">
        <Plot title="Publishes and writes, per second" times={history.times} lines={[{ label: "publishes", values: v.publishes }, { label: "writes", values: v.writes }]} />
        <Plot title="From relays to edges, KiB/s" times={history.times} lines={[{ label: "KiB/s", values: v.bytes }]} />
        <Plot title="Clients" times={history.times} lines={[{ label: "clients", values: v.clients }]} />
      </div>
      <h2>What happened</h2>
      {watch.events.length > 0 ? <EventList events={watch.events.slice(-happenedMax)} /> : <p class="empty">No node came or went, and no session moved, since this page was opened.</p>}
    </section>
  );
}
