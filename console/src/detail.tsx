import { useEffect, useRef, useState } from "preact/hooks";
import { publish, useAsked, type Asked, type Client, type List, type Nearness, type Why } from "./api.js";
import * as format from "./format.js";
import type { Live } from "./live.js";
import type { Row, Value } from "./model.js";
import { audience } from "./states.js";

/** A Detail shows one state: its values as they move, who gets it, and what the game may do with it. */
export function Detail({ live, row, near, edit, close }: { live: Live; row: Row; near: Asked<List<Client>>; edit: boolean; close(): void }) {
  const [said, say] = useState({ text: "", wrong: false });
  const gone = live.model.rows.get(row.n) !== row;
  const act = async (what: string, op: object) => {
    try {
      await publish(live.space, op);
      say({ text: `${what}: done`, wrong: false });
      return true;
    } catch (error) {
      say({ text: `${what}: ${(error as Error).message}`, wrong: true });
      return false;
    }
  };
  return (
    <aside class="detail" aria-label="State">
      <header>
        <h2>{format.plain(row.key)}</h2>
        <button onClick={close} title="Close (Escape)">✕</button>
      </header>
      {gone && <p class="warn">This state is gone.</p>}
      <dl>
        <dt>Seen by</dt><dd>{audience(row)}</dd>
        <dt>Clients may</dt><dd>{row.about.access === "read-only" ? "read it" : row.about.access === "read-write" ? "write it" : `write it: ${(row.about.writers ?? []).map((w) => format.plain(w)).join(", ")}`}</dd>
        <dt>Priority</dt><dd>{row.about.priority}{row.about.levels > 0 ? `, ${row.about.levels} levels of detail` : ""}</dd>
        <dt>Number</dt><dd>{row.n}</dd>
        <dt>Link message</dt><dd><code>{format.plain(row.about.message, 300)}</code></dd>
      </dl>
      <table class="values">
        <tbody>
          {row.about.types.map((type, i) => (
            <tr key={i}>
              <th title={type}>{format.plain(row.about.names[i] || String(i), 60)}<small>{type}</small></th>
              <td>
                <code>{format.value(row.values[i])}</code>
                <Spark value={row.values[i] ?? null} key={row.n} />
                {edit && !gone && <Edit value={row.values[i] ?? null} set={(v) => act("set", { op: "set", key: row.key, values: { [row.about.names[i] || String(i)]: v } })} />}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {edit && !gone && <p><button class="danger" onClick={() => confirm(`Remove ${row.key}?`) && act("remove", { op: "remove", key: row.key })}>Remove the state</button></p>}
      {said.text && <p class={said.wrong ? "said warn" : "said"} role="status">{format.plain(said.text, 400)}</p>}
      {row.about.interest && <Distances live={live} row={row} near={near} />}
      <Sees live={live} row={row} />
      <History live={live} row={row} />
    </aside>
  );
}

function Edit({ value, set }: { value: Value; set(v: unknown): Promise<boolean> }) {
  const [text, setText] = useState<string | undefined>(undefined);
  const [wrong, setWrong] = useState("");
  if (text === undefined) return <button class="small" onClick={() => setText(JSON.stringify(value))}>edit</button>;
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        let v: unknown;
        try {
          v = JSON.parse(text);
        } catch {
          return setWrong("want JSON, such as 1.5, [1, 2, 3] or \"text\"");
        }
        setWrong("");
        void set(v).then((done) => done && setText(undefined)); // what was refused stays, to be mended
      }}
    >
      <input aria-label="New value, as JSON" value={text} onInput={(e) => setText(e.currentTarget.value)} />
      <button class="small">set</button>
      <button type="button" class="small" onClick={() => (setText(undefined), setWrong(""))}>cancel</button>
      {wrong && <span class="warn">{wrong}</span>}
    </form>
  );
}

const sparkPoints = 120; // one a quarter of a second

/** A Spark draws the last half minute of each component of a value. */
function Spark({ value }: { value: Value }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const past = useRef<number[][]>([]);
  const now = useRef(value);
  now.current = value;
  const numbers = typeof value === "number" || Array.isArray(value);
  useEffect(() => {
    if (!numbers) return;
    const timer = setInterval(() => {
      const v = now.current;
      const list = (Array.isArray(v) ? v : [v]).map((x) => (typeof x === "number" ? x : NaN));
      past.current = [...past.current.slice(1 - sparkPoints), list];
      const g = canvas.current?.getContext("2d");
      if (!g) return;
      const { width, height } = g.canvas;
      g.clearRect(0, 0, width, height);
      const all = past.current.flat().filter(Number.isFinite);
      const [low, high] = [Math.min(...all), Math.max(...all)];
      list.forEach((_, c) => {
        g.strokeStyle = `hsl(${[205, 15, 130, 280][c % 4]} 60% 55%)`;
        g.beginPath();
        past.current.forEach((p, i) => {
          const y = high > low ? height - 2 - ((p[c]! - low) / (high - low)) * (height - 4) : height / 2;
          const x = width - (past.current.length - i) * (width / sparkPoints);
          if (i) g.lineTo(x, y);
          else g.moveTo(x, y);
        });
        g.stroke();
      });
    }, 250);
    return () => clearInterval(timer);
  }, [numbers]);
  return numbers ? <canvas class="spark" width={160} height={26} ref={canvas} aria-hidden="true" /> : null;
}

const nearest = 8; // clients of whom the distance is shown

/** how says how a client sees a state, as its edge says. */
function how(n: Nearness): string {
  const distance = n.distance === undefined ? "nowhere" : `${format.number(n.distance, 1)} away`;
  if (n.bands === 0) return `${distance}: the edge does not know the interest`;
  if (n.band === 0) return `${distance}: beyond all bands`;
  return `${distance}: band ${n.band} of ${n.bands}${n.sees ? "" : ", but not in the audience"}`;
}

/** Distances lists the clients with the nearest eyes, and in which band of its interest each has the state, as their edges say. */
function Distances({ live, row, near }: { live: Live; row: Row; near: Asked<List<Client>> }) {
  const interest = live.model.interests.get(row.about.interest ?? "");
  if (!interest) return null;
  const list = near.value?.entries ?? [];
  const see = list.filter((c) => c.near?.sees).length;
  const name = row.about.interest!.startsWith("_") ? "" : ` “${format.plain(row.about.interest!, 64)}”`;
  return (
    <>
      <h3>Interest{name}: from how far it is seen</h3>
      <p class="faint">{interest.bands.map((b) => `up to ${format.number(b.within)}${b.rate ? `: ${format.number(b.rate)} a second` : ""}`).join(" · ")}</p>
      {near.error && <p class="warn">{near.error}</p>}
      {near.value && list.length === 0 && <p class="empty">No edge knows a client with an eye, or the state has no place.</p>}
      <ul class="plain distances">
        {list.slice(0, nearest).map((c) => c.near && (
          <li class={c.near.sees ? "" : "faint"}>
            <b>{format.plain(c.client, 40)}</b> {how(c.near)}
          </li>
        ))}
      </ul>
      {list.length > 0 && <p class="faint">{see} of {list.length}{near.value?.next ? " and more" : ""} with eyes see it</p>}
    </>
  );
}

/** Sees lists the clients of the space, each with why it has what it has of this state. */
function Sees({ live, row }: { live: Live; row: Row }) {
  const clients = useAsked<List<Client>>(`api/clients?space=${encodeURIComponent(live.space)}&max=50`, 2_000);
  const [whose, setWhose] = useState("");
  const list = [...new Map((clients.value?.entries ?? []).map((c) => [c.client, c])).values()];
  return (
    <>
      <h3>Who is sent it, who is not, and why</h3>
      {clients.error && <p class="warn">{clients.error}</p>}
      {clients.value && list.length === 0 && <p class="empty">No client is in this space.</p>}
      <p class="chips">
        {list.map(({ client, carrier, edge }) => (
          <button class={client === whose ? "chip on" : "chip"} onClick={() => setWhose(client === whose ? "" : client)}>
            {format.plain(client, 40)} <small class="faint">{format.plain(`${carrier}, ${edge}`, 60)}</small>
          </button>
        ))}
        {clients.value?.next && <span class="faint">and more</span>}
      </p>
      {!whose && list.length > 0 && <p class="faint">Choose a client to see what it has of this state, and why.</p>}
      {whose && <Reasons space={live.space} client={whose} stateKey={row.key} />}
    </>
  );
}

export function Reasons({ space, client, stateKey }: { space: string; client: string; stateKey: string }) {
  const path = `api/why?space=${encodeURIComponent(space)}&client=${encodeURIComponent(client)}&key=${encodeURIComponent(stateKey)}`;
  const why = useAsked<Why>(path, 1_500);
  if (why.error) return <p class="warn">{why.error}</p>;
  if (!why.value) return <p class="faint">Asking the edge…</p>;
  return (
    <ol class="why">
      {(why.value.reasons ?? []).map((r) => (
        <li class={r.blocks ? "blocks" : "fine"} title={r.code}>
          <span aria-hidden="true">{r.blocks ? "✕" : "✓"}</span> {format.plain(r.text, 400)}
        </li>
      ))}
    </ol>
  );
}

/** History lists the latest events about a state. */
function History({ live, row }: { live: Live; row: Row }) {
  const events = live.model.events.filter((e) => e.key === row.key).slice(-6).reverse();
  if (events.length === 0) return null;
  return (
    <>
      <h3>Recent events</h3>
      <ul class="plain">
        {events.map((e) => <li><b>{format.plain(e.type, 40)}</b> {format.plain(e.client ?? "", 60)} <span class="faint">{format.moment(e.ts ?? "")}</span></li>)}
      </ul>
    </>
  );
}
