import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export const rowHeight = 28;
const spare = 8; // rows that are there above and below what is in sight

export interface Column<T> {
  name: string;
  title?: string;
  right?: boolean;
  width?: string; // of CSS grid; the usual one is for a number
  cell(item: T): ComponentChildren;
  by?: ((item: T) => number | string) | undefined; // what it is sorted by; without it, it is not
}

/** Sorting may take one part in so many of the time; a long list is shown in an older order until then. */
const sortShare = 20;

/** A Table shows as many rows of a long list as are in sight. Another `filter` shows at once that the items are others. */
export function Table<T>({ items, columns, id, selected, select, sort, filter = "", empty }: {
  items: T[];
  columns: Column<T>[];
  id(item: T): string | number;
  selected?: string | number | undefined;
  select?(item: T): void;
  sort?: string;
  filter?: string;
  empty: string;
}) {
  const [order, setOrder] = useState<{ name: string; down: boolean }>({ name: sort ?? columns[0]!.name, down: false });
  const [view, setView] = useState({ top: 0, height: 800 });
  const body = useRef<HTMLDivElement>(null);
  const by = columns.find((c) => c.name === order.name)?.by;
  const kept = useRef({ how: "", at: 0, cost: 0, list: items });
  const how = `${order.name} ${order.down} ${filter}`;
  const now = performance.now();
  if (how !== kept.current.how || now - kept.current.at >= kept.current.cost * sortShare) {
    const list = by ? sortedBy(items, by, order.down) : items;
    kept.current = { how, at: now, cost: performance.now() - now, list };
  }
  const sorted = kept.current.list;

  useEffect(() => {
    const element = body.current!;
    const watch = new ResizeObserver(() => setView((v) => ({ ...v, height: element.clientHeight })));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);

  const from = Math.max(0, Math.floor(view.top / rowHeight) - spare);
  const to = Math.min(sorted.length, Math.ceil((view.top + view.height) / rowHeight) + spare);
  const at = sorted.findIndex((item) => id(item) === selected);
  const go = (i: number) => {
    const item = sorted[Math.min(sorted.length - 1, Math.max(0, i))];
    const element = body.current;
    if (!item || !select || !element) return;
    select(item);
    const top = Math.min(sorted.length - 1, Math.max(0, i)) * rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    if (top + 2 * rowHeight > element.scrollTop + element.clientHeight) element.scrollTop = top + 2 * rowHeight - element.clientHeight;
  };
  const template = columns.map((c) => c.width ?? "minmax(4.5rem, 1fr)").join(" ");
  return (
    <div
      class="table"
      role="grid"
      aria-rowcount={sorted.length}
      tabIndex={0}
      onKeyDown={(e) => {
        const steps: { [key: string]: number } = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 };
        const step = steps[e.key];
        if (step === undefined) return;
        go(at + step);
        e.preventDefault();
      }}
    >
      <div class="row head" role="row" style={{ gridTemplateColumns: template }}>
        {columns.map((c) => (
          <button
            role="columnheader"
            class={c.right ? "right" : ""}
            title={c.title}
            disabled={!c.by}
            aria-sort={order.name !== c.name ? "none" : order.down ? "descending" : "ascending"}
            onClick={() => setOrder({ name: c.name, down: order.name === c.name ? !order.down : c.right === true })}
          >
            {c.name}
            {order.name === c.name && c.by ? (order.down ? " ↓" : " ↑") : ""}
          </button>
        ))}
      </div>
      <div class="body" ref={body} onScroll={(e) => setView({ top: e.currentTarget.scrollTop, height: e.currentTarget.clientHeight })}>
        <div style={{ height: `${sorted.length * rowHeight}px`, position: "relative" }}>
          <div style={{ position: "absolute", top: `${from * rowHeight}px`, left: 0, right: 0 }}>
            {sorted.slice(from, to).map((item) => (
              <div
                key={id(item)}
                role="row"
                class={`row${id(item) === selected ? " selected" : ""}${select ? " link" : ""}`}
                style={{ gridTemplateColumns: template, height: `${rowHeight}px` }}
                onClick={() => select?.(item)}
              >
                {columns.map((c) => <span role="gridcell" class={c.right ? "right" : ""}>{c.cell(item)}</span>)}
              </div>
            ))}
          </div>
        </div>
        {sorted.length === 0 && <p class="empty">{empty}</p>}
      </div>
    </div>
  );
}

/** sortedBy sorts a copy. It asks for what each item is sorted by once, because that may have to be computed. */
function sortedBy<T>(items: T[], by: (item: T) => number | string, down: boolean): T[] {
  const list = items.map((item) => ({ item, by: by(item) }));
  list.sort((a, b) => compare(a.by, b.by) * (down ? -1 : 1));
  return list.map((x) => x.item);
}

function compare(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
}
