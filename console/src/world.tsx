import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Asked, Client, List } from "./api.js";
import { plain } from "./format.js";
import type { Live } from "./live.js";
import { Painter, where, whereEye, type View } from "./map.js";
import { placeOf, type Row } from "./model.js";
import { eyesMax, seers, type Seer } from "./sight.js";
import { Walk } from "./walk.js";

const pickDistance = 14; // pixels

export function World({ live, selected, select, edit, near }: { live: Live; selected: number; select(n: number): void; edit: boolean; near: Asked<List<Client>> }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useRef<View>({ x: 0, y: 0, scale: 0, follows: true });
  const [shown, setShown] = useState<{ placed: number; all: number; fps: number } | undefined>(undefined);
  const [seenBy, setSeenBy] = useState("");
  const [walk, setWalk] = useState<Walk | undefined>(undefined);
  const [trouble, setTrouble] = useState("");
  const eyes = seers(live.model);
  const clients = [...new Set(eyes.map((s) => s.client))];
  const eye = edit ? eyes.find((s) => s.row?.n === selected) : undefined; // which can walk
  const told = useMemo(() => near.value && new Map((near.value.entries ?? []).map((c) => [c.client, c.near!])), [near.value]);
  const scene = useRef({ selected, seenBy, seers: eyes, told });
  scene.current = { selected, seenBy: clients.includes(seenBy) ? seenBy : "", seers: eyes, told };

  useEffect(() => {
    const painter = new Painter(canvas.current!);
    let frame = 0;
    let frames = 0;
    let counted = performance.now();
    const draw = (now: number) => {
      frame = requestAnimationFrame(draw);
      const placed = painter.paint({ model: live.model, view: view.current, ...scene.current }, now);
      frames++;
      if (now - counted > 500) {
        painter.restyle();
        setShown({ placed, all: live.model.rows.size, fps: Math.round((frames * 1_000) / (now - counted)) });
        frames = 0;
        counted = now;
      }
    };
    frame = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(frame);
  }, [live]);
  useEffect(() => {
    if (!walk) return;
    const up = (e: KeyboardEvent) => walk.key(e.key, false);
    const stand = () => walk.stand();
    addEventListener("keyup", up);
    addEventListener("blur", stand);
    return () => {
      removeEventListener("keyup", up);
      removeEventListener("blur", stand);
      walk.end();
    };
  }, [walk]);
  const eyeRow = eye?.row;
  useEffect(() => {
    if (walk && walk.row !== eyeRow) setWalk(undefined);
  }, [walk, eyeRow]);

  const begin = (s: Seer | undefined) => {
    setTrouble("");
    if (!s?.row || walk) return setWalk(undefined);
    setWalk(new Walk(live, s.row, s.value, speed(live, view.current), setTrouble));
    setSeenBy(s.client);
    canvas.current?.focus();
  };
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
    let [best, client, distance] = [undefined as Row | undefined, "", pickDistance];
    const [now, p] = [performance.now(), { x: 0, y: 0 }];
    const near = (row: Row | undefined, of: string) => {
      const d = Math.hypot(w / 2 + (p.x - v.x) * v.scale - px, h / 2 - (p.y - v.y) * v.scale - py);
      if (d < distance) [best, client, distance] = [row, of, d];
    };
    for (const s of eyes) if (whereEye(live.model, s, now, p)) near(s.row, s.client); // before states, so that an eye wins
    for (const row of live.model.rows.values()) if (where(row, now, p)) near(row, "");
    select(best?.n ?? 0);
    if (client) setSeenBy(client);
  };
  const press = (e: KeyboardEvent) => {
    if (walk?.key(e.key, true)) return e.preventDefault();
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
    if (eye) keys["w"] = () => begin(eye);
    if (walk) keys["Escape"] = () => setWalk(undefined);
    const act = keys[e.key];
    if (!act) return;
    if (e.key.startsWith("Arrow")) v.follows = false;
    act();
    e.preventDefault();
    e.stopPropagation(); // Escape ends one thing at a time
  };

  return (
    <section class="world">
      <canvas
        ref={canvas}
        tabIndex={0}
        aria-label="Map of the states that have a place. Arrow keys move it, + and - zoom, 0 shows everything."
        onKeyDown={press}
        onBlur={() => walk?.stand()}
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
      <div class="mappick">
        <PlacePicker live={live} />
        {clients.length > 0 && (
          <label>
            Seen by{" "}
            <select class="seenby" value={scene.current.seenBy} onChange={(e) => setSeenBy(e.currentTarget.value)}>
              <option value="">everybody</option>
              {clients.map((c) => <option value={c}>{plain(c, 40)}</option>)}
            </select>
            {eyes.length >= eyesMax && <span class="faint"> the first {eyesMax} eyes</span>}
          </label>
        )}
        {eye && <button class={walk ? "on" : ""} aria-pressed={walk !== undefined} title="Move the state with the arrow keys (w)" onClick={() => begin(eye)}>{walk ? "Stop" : "Walk"}</button>}
        {walk && <span class={trouble ? "warn" : "faint"} role="status">{trouble ? plain(trouble, 120) : `Arrow keys walk ${plain(walk.row.key, 40)}`}</span>}
      </div>
      <div class="mapkeys">
        <button onClick={() => zoom(1.25)} title="Zoom in (+)">+</button>
        <button onClick={() => zoom(0.8)} title="Zoom out (-)">−</button>
        <button onClick={() => Object.assign(view.current, { follows: true, extent: undefined })} title="Show everything (0)">Fit</button>
      </div>
      {shown && <p class="mapnote">{shown.placed} of {shown.all} states have a place{clients.length > 0 && ` · ${clients.length} ${clients.length === 1 ? "client has" : "clients have"} eyes`} · {shown.fps} fps</p>}
      {shown && shown.all > 0 && shown.placed === 0 && (
        <p class="empty over">No state has a value with two or three numbers that could be a place. The table has them all.</p>
      )}
      {shown?.all === 0 && live.model.complete && <p class="empty over">The space has no states. Publish one, and it appears here.</p>}
    </section>
  );
}

/** speed returns how fast one walks: through the nearest band in two seconds, or across the map in ten. */
function speed(live: Live, view: View): number {
  const nearest = Math.min(...[...live.model.interests.values()].map((i) => i.bands[0]?.within ?? Infinity));
  return Number.isFinite(nearest) ? nearest / 2 : 100 / Math.max(view.scale, 1e-9);
}

function PlacePicker({ live }: { live: Live }) {
  const [, again] = useState(0);
  const { place } = live.model;
  const set = (value: string, axes: [number, number]) => {
    live.model.setPlace({ value, axes }, performance.now());
    again((n) => n + 1);
  };
  return (
    <>
      <label>
        Place{" "}
        <select value={place.value} onChange={(e) => set(e.currentTarget.value, place.axes)}>
          <option value="">{placeLabel(live)}</option>
          {[...live.model.places].map((n) => <option value={n}>{plain(n, 40)}</option>)}
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
    </>
  );
}

function placeLabel(live: Live): string {
  const first = live.model.rows.values().next().value;
  const i = first ? placeOf(first.about, "") : -1;
  return i >= 0 && first?.about.names[i] ? `automatic (${first.about.names[i]})` : "automatic";
}
