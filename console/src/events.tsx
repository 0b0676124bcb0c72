import { useState } from "preact/hooks";
import * as format from "./format.js";
import type { Live } from "./live.js";
import type { GameEvent } from "./model.js";
import type { Watch } from "./watch.js";

const shownMax = 300;

/** rest returns what an event says besides what the columns show. */
function rest(e: GameEvent): string {
  const known = ["v", "type", "space", "ts", "client", "key", "epoch", "seq", "session"];
  return Object.entries(e).filter(([k]) => !known.includes(k)).map(([k, v]) => `${k}=${typeof v === "object" ? JSON.stringify(v) : String(v)}`).join("  ");
}

/** An EventList shows events, the newest first. */
export function EventList({ events }: { events: GameEvent[] }) {
  return (
    <ul class="events" aria-live="off">
      {[...events].reverse().map((e) => (
        <li>
          <time>{format.moment(e.ts ?? "")}</time> <b class={bad.test(e.type) ? "event warn" : "event"}>{format.plain(e.type, 40)}</b>{" "}
          <span>{format.plain(e.client ?? "", 60)}</span> <span>{format.plain(e.key ?? "", 80)}</span> <code>{format.plain(rest(e), 400)}</code>
        </li>
      ))}
    </ul>
  );
}

const bad = /^(left|removed|refused)$|gone$|silent$/;

/** The events of the space, and what happened to nodes and sessions. */
export function Events({ live, watch }: { live: Live; watch: Watch }) {
  const [filter, setFilter] = useState("");
  const [held, setHeld] = useState<GameEvent[] | undefined>(undefined);
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const both = () => (watch.events.length ? [...live.model.events, ...watch.events].sort((a, b) => ((a.ts ?? "") < (b.ts ?? "") ? -1 : 1)) : live.model.events);
  const all = held ?? both();
  const list = all.filter((e) => words.length === 0 || words.every((w) => JSON.stringify(e).toLowerCase().includes(w)));
  return (
    <section class="states">
      <div class="tools">
        <input type="search" id="filter" placeholder="Filter events…  ( / )" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
        <button onClick={() => setHeld(held ? undefined : both())}>{held ? "Go on" : "Hold"}</button>
        <span class="count">{list.length} of {all.length}{live.model.missed ? `, ${live.model.missed} were too many` : ""}</span>
      </div>
      {list.length > 0 && <EventList events={list.slice(-shownMax)} />}
      {list.length === 0 && <p class="empty">{all.length ? "No event matches the filter." : "Nothing has happened since this page was opened."}</p>}
    </section>
  );
}
