import { useEffect, useRef, useState } from "preact/hooks";
import { family, hue, number } from "./format.js";
import type { Live } from "./live.js";
import { placeOf, type Row } from "./model.js";

/** A View is the part of the world that the canvas shows: its middle, and pixels for a unit. */
interface View {
  x: number;
  y: number;
  scale: number;
  follows: boolean; // keeps everything in sight, until somebody drags or zooms
  extent?: Extent | undefined; // of what is there, and was lately
}

type Extent = [x0: number, y0: number, x1: number, y1: number];

const trailsBelow = 3_000; // states; more trails are only noise
const pickDistance = 14; // pixels
/** Frames come five times a second; between two of them a state moves evenly. */
const glide = 220;

/** where returns the place of a state at a moment. */
function where(row: Row, now: number): { x: number; y: number } | undefined {
  const last = row.trail.at(-1);
  if (!last) return undefined;
  const before = row.trail.at(-2);
  if (!before || last.at - before.at > 1_000) return last;
  const t = Math.min(1, (now - last.at) / glide);
  return { x: before.x + (last.x - before.x) * t, y: before.y + (last.y - before.y) * t };
}

function bounds(rows: Iterable<Row>): Extent | undefined {
  let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const row of rows) {
    const p = row.trail.at(-1);
    if (!p) continue;
    x0 = Math.min(x0, p.x);
    x1 = Math.max(x1, p.x);
    y0 = Math.min(y0, p.y);
    y1 = Math.max(y1, p.y);
  }
  return x0 <= x1 ? [x0, y0, x1, y1] : undefined;
}

/** fit moves a view, a part of the way in each frame, so that it shows everything. What states leave it shows for a while. */
function fit(view: View, rows: Iterable<Row>, width: number, height: number, share: number): void {
  const now = bounds(rows);
  if (!now) return;
  const old = view.extent ?? now;
  const slowly = (from: number, to: number) => from + (to - from) * 0.002;
  const b: Extent = [
    Math.min(now[0], slowly(old[0], now[0])), Math.min(now[1], slowly(old[1], now[1])),
    Math.max(now[2], slowly(old[2], now[2])), Math.max(now[3], slowly(old[3], now[3])),
  ];
  view.extent = b;
  const size = Math.max(b[2] - b[0], b[3] - b[1], 1e-6);
  const scale = Math.min((width * 0.86) / Math.max(b[2] - b[0], size / 8), (height * 0.82) / Math.max(b[3] - b[1], size / 8));
  if (!Number.isFinite(view.scale) || view.scale === 0) share = 1;
  view.x += ((b[0] + b[2]) / 2 - view.x) * share;
  view.y += ((b[1] + b[3]) / 2 - view.y) * share;
  view.scale += (Math.min(scale, 1e9) - view.scale) * share;
}

export function World({ live, selected, select }: { live: Live; selected: number; select(n: number): void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useRef<View>({ x: 0, y: 0, scale: 0, follows: true });
  const [shown, setShown] = useState<{ placed: number; all: number; fps: number } | undefined>(undefined);
  const chosen = useRef(selected);
  chosen.current = selected;

  useEffect(() => {
    const element = canvas.current!;
    const g = element.getContext("2d")!;
    let frame = 0;
    let frames = 0;
    let counted = performance.now();
    const colours = new Map<string, string>();
    const draw = (now: number) => {
      frame = requestAnimationFrame(draw);
      const [w, h] = [element.clientWidth, element.clientHeight];
      const ratio = devicePixelRatio || 1;
      if (element.width !== Math.round(w * ratio) || element.height !== Math.round(h * ratio)) {
        element.width = Math.round(w * ratio);
        element.height = Math.round(h * ratio);
      }
      const style = getComputedStyle(element);
      const dark = style.colorScheme.includes("dark");
      const v = view.current;
      const { rows } = live.model;
      if (v.follows) fit(v, rows.values(), w, h, 0.15);
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      g.clearRect(0, 0, w, h);
      grid(g, v, w, h, style);
      const [sx, sy] = [(x: number) => w / 2 + (x - v.x) * v.scale, (y: number) => h / 2 - (y - v.y) * v.scale];
      const trails = rows.size <= trailsBelow;
      const size = rows.size > 2_000 ? 3 : rows.size > 300 ? 5 : 8;
      let placed = 0;
      for (const row of rows.values()) {
        const p = where(row, now);
        if (!p) continue;
        placed++;
        const [x, y] = [sx(p.x), sy(p.y)];
        if (x < -50 || y < -50 || x > w + 50 || y > h + 50) continue;
        const name = family(row.key) + dark;
        let colour = colours.get(name);
        if (!colour) {
          if (colours.size > 5_000) colours.clear();
          colours.set(name, (colour = `hsl(${hue(family(row.key))} 70% ${dark ? 65 : 42}%)`));
        }
        if (trails && row.trail.length > 1 && now - row.changedAt < 4_000) {
          g.strokeStyle = colour;
          g.globalAlpha = 0.3;
          g.beginPath();
          row.trail.slice(0, -1).forEach((q, i) => (i ? g.lineTo(sx(q.x), sy(q.y)) : g.moveTo(sx(q.x), sy(q.y))));
          g.lineTo(x, y);
          g.stroke();
          g.globalAlpha = 1;
        }
        g.fillStyle = colour;
        g.fillRect(x - size / 2, y - size / 2, size, size);
        if (row.n === chosen.current) {
          g.strokeStyle = style.color;
          g.lineWidth = 2;
          g.strokeRect(x - size / 2 - 5, y - size / 2 - 5, size + 10, size + 10);
          g.lineWidth = 1;
        }
      }
      frames++;
      if (now - counted > 500) {
        setShown({ placed, all: rows.size, fps: Math.round((frames * 1_000) / (now - counted)) });
        frames = 0;
        counted = now;
      }
    };
    frame = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(frame);
  }, [live]);

  const drag = useRef<{ x: number; y: number; moved: boolean } | undefined>(undefined);
  const zoom = (factor: number, px?: number, py?: number) => {
    const v = view.current;
    const { clientWidth: w, clientHeight: h } = canvas.current!;
    const [dx, dy] = [(px ?? w / 2) - w / 2, h / 2 - (py ?? h / 2)];
    v.follows = false;
    v.x += dx / v.scale - dx / (v.scale * factor);
    v.y += dy / v.scale - dy / (v.scale * factor);
    v.scale = Math.min(1e9, Math.max(1e-9, v.scale * factor));
  };
  const pick = (px: number, py: number) => {
    const v = view.current;
    const { clientWidth: w, clientHeight: h } = canvas.current!;
    let best: Row | undefined;
    let distance = pickDistance;
    const now = performance.now();
    for (const row of live.model.rows.values()) {
      const p = where(row, now);
      if (!p) continue;
      const d = Math.hypot(w / 2 + (p.x - v.x) * v.scale - px, h / 2 - (p.y - v.y) * v.scale - py);
      if (d < distance) [best, distance] = [row, d];
    }
    select(best?.n ?? 0);
  };
  const walk = (e: KeyboardEvent) => {
    const v = view.current;
    const step = 40 / v.scale;
    const keys: { [key: string]: () => void } = {
      ArrowLeft: () => (v.x -= step),
      ArrowRight: () => (v.x += step),
      ArrowUp: () => (v.y += step),
      ArrowDown: () => (v.y -= step),
      "+": () => zoom(1.25),
      "-": () => zoom(0.8),
      "0": () => Object.assign(v, { follows: true, extent: undefined }),
    };
    const act = keys[e.key];
    if (!act) return;
    if (e.key.startsWith("Arrow")) v.follows = false;
    act();
    e.preventDefault();
  };

  return (
    <section class="world">
      <canvas
        ref={canvas}
        tabIndex={0}
        aria-label="Map of the states that have a place. Arrow keys move it, + and - zoom, 0 shows everything."
        onKeyDown={walk}
        onPointerDown={(e) => {
          drag.current = { x: e.offsetX, y: e.offsetY, moved: false };
          (e.target as Element).setPointerCapture(e.pointerId);
        }}
        onPointerMove={(e) => {
          const d = drag.current;
          if (!d || Math.hypot(e.offsetX - d.x, e.offsetY - d.y) < (d.moved ? 0 : 4)) return;
          const v = view.current;
          v.follows = false;
          v.x -= (e.offsetX - d.x) / v.scale;
          v.y += (e.offsetY - d.y) / v.scale;
          drag.current = { x: e.offsetX, y: e.offsetY, moved: true };
        }}
        onPointerUp={(e) => {
          if (drag.current && !drag.current.moved) pick(e.offsetX, e.offsetY);
          drag.current = undefined;
        }}
        onWheel={(e) => {
          e.preventDefault();
          zoom(Math.exp(-e.deltaY * 0.0015), e.offsetX, e.offsetY);
        }}
      />
      <PlacePicker live={live} />
      <div class="mapkeys">
        <button onClick={() => zoom(1.25)} title="Zoom in (+)">+</button>
        <button onClick={() => zoom(0.8)} title="Zoom out (-)">−</button>
        <button onClick={() => Object.assign(view.current, { follows: true, extent: undefined })} title="Show everything (0)">Fit</button>
      </div>
      {shown && <p class="mapnote">{shown.placed} of {shown.all} states have a place · {shown.fps} fps</p>}
      {shown && shown.all > 0 && shown.placed === 0 && (
        <p class="empty over">No state has a value with two or three numbers that could be a place. The table has them all.</p>
      )}
      {shown?.all === 0 && live.model.complete && <p class="empty over">The space has no states. Publish one, and it appears here.</p>}
    </section>
  );
}

/** grid draws lines at round numbers, and says which ones. */
function grid(g: CanvasRenderingContext2D, v: View, w: number, h: number, style: CSSStyleDeclaration): void {
  if (!(v.scale > 0)) return;
  const step = [1, 2, 5, 10].map((m) => m * 10 ** Math.floor(Math.log10(80 / v.scale))).find((s) => s * v.scale >= 60) ?? 1;
  g.strokeStyle = style.getPropertyValue("--line");
  g.fillStyle = style.getPropertyValue("--faint");
  g.font = "11px system-ui, sans-serif";
  g.beginPath();
  for (let x = Math.ceil((v.x - w / 2 / v.scale) / step) * step; x < v.x + w / 2 / v.scale; x += step) {
    const px = Math.round(w / 2 + (x - v.x) * v.scale) + 0.5;
    g.moveTo(px, 0);
    g.lineTo(px, h);
    g.fillText(number(Math.round(x / step) * step), px + 3, h - 6);
  }
  for (let y = Math.ceil((v.y - h / 2 / v.scale) / step) * step; y < v.y + h / 2 / v.scale; y += step) {
    const py = Math.round(h / 2 - (y - v.y) * v.scale) + 0.5;
    g.moveTo(0, py);
    g.lineTo(w, py);
    g.fillText(number(Math.round(y / step) * step), 4, py - 4);
  }
  g.stroke();
}

function PlacePicker({ live }: { live: Live }) {
  const [, again] = useState(0);
  const { place } = live.model;
  const names = new Set<string>();
  for (const row of live.model.rows.values()) {
    row.about.types.forEach((t, i) => /^(vector|point)[23]/.test(t) && row.about.names[i] && names.add(row.about.names[i]!));
    if (names.size > 20) break;
  }
  const set = (value: string, axes: [number, number]) => {
    live.model.setPlace({ value, axes }, performance.now());
    again((n) => n + 1);
  };
  return (
    <div class="mappick">
      <label>
        Place{" "}
        <select value={place.value} onChange={(e) => set(e.currentTarget.value, place.axes)}>
          <option value="">{placeLabel(live)}</option>
          {[...names].map((n) => <option value={n}>{n}</option>)}
        </select>
      </label>
      <label>
        Axes{" "}
        <select value={place.axes.join()} onChange={(e) => set(place.value, e.currentTarget.value.split(",").map(Number) as [number, number])}>
          <option value="0,2">x z</option>
          <option value="0,1">x y</option>
          <option value="2,1">z y</option>
        </select>
      </label>
    </div>
  );
}

function placeLabel(live: Live): string {
  const first = live.model.rows.values().next().value;
  const i = first ? placeOf(first.about, "") : -1;
  return i >= 0 && first?.about.names[i] ? `automatic (${first.about.names[i]})` : "automatic";
}
