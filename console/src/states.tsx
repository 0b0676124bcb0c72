import { useState } from "preact/hooks";
import * as format from "./format.js";
import type { Live } from "./live.js";
import type { About, Row } from "./model.js";
import { Table, type Column } from "./table.js";

/** matches reports whether a state has all words of a filter in its key, the names of its values, or who sees it. */
export function matches(row: Row, filter: string): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const { about } = row;
  let text = texts.get(about);
  if (text === undefined) {
    text = [about.key, ...about.names, about.audience, ...(about.groups ?? []), ...(about.clients ?? []), about.access].join(" ").toLowerCase();
    texts.set(about, text);
  }
  return words.every((w) => text.includes(w));
}

/** What is searched for the words, made once for each state: a filter goes through all states four times a second. */
const texts = new WeakMap<About, string>();

export function audience(row: Row): string {
  const { about } = row;
  const names = (what: string, list: string[] | undefined) => (list?.length ? [`${what}${list.length > 1 ? "s" : ""} ${list.map((n) => format.plain(n, 60)).join(", ")}`] : []);
  const list = [...names("group", about.groups), ...names("client", about.clients)].join(", ");
  switch (about.audience) {
    case "all": return "everybody";
    case "none": return "nobody";
    case "all-but": return `all but ${list}`;
    default: return list || "nobody";
  }
}

export function summary(row: Row): string {
  return row.about.types.map((_, i) => {
    const name = row.about.names[i];
    const text = format.value(row.values[i]);
    return name ? `${format.plain(name, 40)}=${text}` : text;
  }).join("  ");
}

const columns = (now: number): Column<Row>[] => [
  { name: "key", width: "minmax(8rem, 3fr)", cell: (r) => <b>{format.plain(r.key)}</b>, by: (r) => r.key },
  { name: "values", width: "minmax(10rem, 4fr)", cell: (r) => <code>{format.plain(summary(r), 300)}</code> },
  { name: "changes/s", right: true, title: "As this page sees them, five times a second at most", cell: (r) => format.number(r.rate(now), 1), by: (r) => r.rate(now) },
  { name: "changed", right: true, cell: (r) => `${format.span(now - r.changedAt)}`, by: (r) => now - r.changedAt },
  { name: "size", right: true, title: "Bytes of all values", cell: (r) => format.bytes(r.size), by: (r) => r.size },
  { name: "seen by", width: "minmax(6rem, 1.5fr)", cell: (r) => audience(r), by: (r) => audience(r) },
  { name: "clients may", width: "minmax(6rem, 1fr)", cell: (r) => (r.about.access === "read-only" ? "read" : r.about.access === "writers" ? (r.about.writers ?? []).map((w) => format.plain(w, 60)).join(", ") : "write"), by: (r) => r.about.access },
];

export function States({ live, selected, select }: { live: Live; selected: number; select(n: number): void }) {
  const [filter, setFilter] = useState("");
  const now = performance.now();
  const rows = [...live.model.rows.values()].filter((r) => matches(r, filter));
  return (
    <section class="states">
      <div class="tools">
        <input type="search" id="filter" placeholder="Filter by key, value, group…  ( / )" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
        <span class="count">{rows.length} of {live.model.rows.size}</span>
      </div>
      <Table
        items={rows}
        columns={columns(now)}
        id={(r) => r.n}
        selected={selected}
        filter={filter}
        select={(r) => select(r.n)}
        empty={live.model.rows.size ? "No state matches the filter." : live.model.complete ? "The space has no states." : "Waiting for the states…"}
      />
    </section>
  );
}
