import { useState } from "preact/hooks";
import { publish, useAsked, type Client, type List } from "./api.js";
import { Reasons } from "./detail.js";
import * as format from "./format.js";
import type { Live } from "./live.js";
import { Plot, useHistory } from "./plot.js";
import { Table, type Column } from "./table.js";

const columns: Column<Client>[] = [
  { name: "client", width: "minmax(8rem, 3fr)", cell: (c) => <b>{format.plain(c.client, 80)}</b>, by: (c) => c.client },
  { name: "edge", cell: (c) => format.plain(c.edge, 60), by: (c) => c.edge },
  { name: "by", cell: (c) => c.carrier, by: (c) => c.carrier },
  { name: "for", right: true, width: "minmax(6rem, 1fr)", cell: (c) => format.span(c.age_ms), by: (c) => c.age_ms },
  { name: "links", right: true, cell: (c) => c.links.up, by: (c) => c.links.up },
  { name: "waiting", right: true, title: "Links whose values wait for the budget, and for how long", cell: (c) => (c.links.waiting ? `${c.links.waiting}, ${format.span(c.links.oldest_ms)}` : "0"), by: (c) => c.links.waiting },
  { name: "loss", right: true, cell: (c) => `${format.number(c.path.loss * 100, 1)} %`, by: (c) => c.path.loss },
  { name: "round trip", right: true, cell: (c) => (c.path.rtt_ms ? format.span(c.path.rtt_ms) : "–"), by: (c) => c.path.rtt_ms },
  { name: "heard", right: true, title: "How long ago its last datagram came", cell: (c) => (c.path.away ? "away" : format.span(c.path.heard_ms)), by: (c) => c.path.heard_ms },
];

export function Clients({ live, edit }: { live: Live; edit: boolean }) {
  const [after, setAfter] = useState<string[]>([]);
  const path = `api/clients?space=${encodeURIComponent(live.space)}&max=500&after=${encodeURIComponent(after.at(-1) ?? "")}`;
  const asked = useAsked<List<Client>>(path);
  const [session, setSession] = useState("");
  const list = asked.value?.entries ?? [];
  const client = list.find((c) => c.session === session);
  return (
    <section class={client ? "split" : "whole"}>
      <div class="states">
        <div class="tools">
          <span class="count">{format.count(list.length, "client")}{after.length || asked.value?.next ? " on this page" : ""}</span>
          {after.length > 0 && <button onClick={() => setAfter(after.slice(0, -1))}>Previous page</button>}
          {asked.value?.next && <button onClick={() => setAfter([...after, asked.value!.next!])}>Next page</button>}
          {asked.error && <span class="warn">{asked.error}</span>}
        </div>
        <Table items={list} columns={columns} id={(c) => c.session} selected={session} select={(c) => setSession(c.session)} empty={asked.value ? "No client is in this space." : "Asking the edges…"} />
      </div>
      {client && <OneClient key={client.session} live={live} client={client} edit={edit} close={() => setSession("")} />}
    </section>
  );
}

function OneClient({ live, client: c, edit, close }: { live: Live; client: Client; edit: boolean; close(): void }) {
  const [said, say] = useState("");
  const [key, setKey] = useState("");
  const history = useHistory(c.session, { loss: c.path.loss * 100, rtt: c.path.rtt_ms });
  const found = key ? [...live.model.byKey.keys()].filter((k) => k.includes(key)).slice(0, 8) : [];
  const exact = live.model.byKey.has(key);
  const kick = () => {
    const reason = prompt(`Kick ${c.client}? All its sessions in ${live.space} end. Why? Game servers are told; it may be empty.`, "");
    if (reason !== null) publish(live.space, { op: "kick", client: c.client, ...(reason ? { reason } : {}) }).then(() => say("kicked"), (e: Error) => say(`kick: ${e.message}`));
  };
  return (
    <aside class="detail" aria-label="Client">
      <header>
        <h2>{format.plain(c.client, 100)}</h2>
        <button onClick={close} title="Close (Escape)">✕</button>
      </header>
      <dl>
        <dt>Edge</dt><dd>{format.plain(c.edge, 80)}, by {c.carrier}</dd>
        <dt>Address</dt><dd>{format.plain(c.address, 60) || "not shown"}</dd>
        <dt>Session</dt><dd><code>{format.plain(c.session, 60)}</code></dd>
        <dt>Groups</dt><dd>{(live.model.groups.get(c.client) ?? []).map((g) => format.plain(g, 40)).join(", ") || "none"}</dd>
        <dt>Links</dt><dd>{c.links.up} up, {c.links.offered} offered, {c.links.queued} queued, {c.links.own} of its own; {c.links.ids_left} LinkIds left</dd>
        <dt>Declined</dt><dd>{c.declined}</dd>
        <dt>Writes</dt><dd>{c.writes} states wait for the relay</dd>
        <dt>Budget</dt><dd><meter min={0} max={Math.max(1, c.path.rate)} value={c.path.used} /> {c.path.rate > 0 ? `${format.bytes(c.path.rate)} per second${c.path.slowed ? ", slowed down" : ""}` : "no limit"}</dd>
      </dl>
      {edit && (
        <p>
          <button class="danger" onClick={() => kick()}>Kick the client</button>
        </p>
      )}
      {said && <p class="said" role="status">{format.plain(said, 400)}</p>}
      <Plot title="Loss, %" times={history.times} lines={[{ label: "loss", values: history.values["loss"] }]} />
      <Plot title="Round trip, ms" times={history.times} lines={[{ label: "rtt", values: history.values["rtt"] }]} />
      <h3>Why does it have what it has?</h3>
      <input list="keys" placeholder="Key of a state" value={key} onInput={(e) => setKey(e.currentTarget.value)} />
      {!exact && <p class="chips">{found.map((k) => <button class="chip" onClick={() => setKey(k)}>{format.plain(k, 60)}</button>)}</p>}
      {(exact || (key && found.length === 0)) && <Reasons space={live.space} client={c.client} stateKey={key} />}
    </aside>
  );
}
