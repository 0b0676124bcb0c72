// The map of a space on a canvas: a grid, states with their trails, eyes, and the bands around them.
import type { Nearness } from "./api.js";
import { number, plain } from "./format.js";
import { trailsBelow, type Model, type Row } from "./model.js";
import { components, eyeAt, sight, type Seer, type Sight } from "./sight.js";

/** A View is the part of the world that the canvas shows: its middle, and pixels for a unit. */
export interface View {
  x: number;
  y: number;
  scale: number;
  follows: boolean; // keeps everything in sight, until somebody drags or zooms
  extent?: Extent | undefined; // of what is there, and was lately
}

type Extent = [x0: number, y0: number, x1: number, y1: number];

/** Frames of the server come five times a second; between two of them a state moves evenly. */
const glide = 220;
/** How plainly a state is drawn that a client does not see. */
const unseen = 0.13;
/** What does not change is drawn again so often in ms, because trails vanish and a map that everything left shrinks. */
const repaint = 500;
/** The names of more eyes, and the borders of what they see, would hide the map. */
const namedEyes = 24;

export interface Point {
  x: number;
  y: number;
}

/** where says where a state is at a moment, in `to`; false if it has no place. */
export function where(row: Row, now: number, to: Point): boolean {
  if (!row.placed) return false;
  const { now: last, before } = row;
  const t = last.at - before.at > 1_000 ? 1 : Math.min(1, (now - last.at) / glide);
  to.x = t === 1 ? last.x : before.x + (last.x - before.x) * t;
  to.y = t === 1 ? last.y : before.y + (last.y - before.y) * t;
  return true;
}

/** whereEye says where an eye is on the map. */
export function whereEye(model: Model, s: Seer, now: number, to: Point): boolean {
  if (s.row && s.value === s.row.placeAt) return where(s.row, now, to);
  const at = eyeAt(s);
  const x = at[model.place.axes[0]];
  const y = at[Math.min(model.place.axes[1], at.length - 1)];
  if (typeof x !== "number" || typeof y !== "number") return false;
  [to.x, to.y] = [x, y];
  return true;
}

function bounds(rows: Iterable<Row>): Extent | undefined {
  let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const row of rows) {
    if (!row.placed) continue;
    const { x, y } = row.now;
    if (x < x0) x0 = x;
    if (x > x1) x1 = x;
    if (y < y0) y0 = y;
    if (y > y1) y1 = y;
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

/** Of more states each is a few pixels, which are written one by one: thousands of rectangles cost ten times as much. */
const pixelsFrom = 2_000;

export interface Scene {
  model: Model;
  view: View;
  selected: number; // number of a state
  seenBy: string; // the client through whose eyes the map is seen; "" for none
  seers: Seer[];
  told: Map<string, Nearness> | undefined; // how clients see the selected state, as edges say; undefined until they did
}

/** A Painter draws a map. */
export class Painter {
  readonly #g: CanvasRenderingContext2D;
  readonly #colours: string[] = []; // by hue
  readonly #pixels = new Uint32Array(360); // the same
  #image: ImageData | undefined;
  #painted = ""; // what was drawn, but for what the model has
  #paintedAt = 0;
  #placed = 0;
  #theme: string | undefined;
  #dark: boolean | undefined;
  #text = "";
  #line = "";
  #faint = "";
  #accent = "";

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.#g = canvas.getContext("2d")!;
    this.restyle();
  }

  /** restyle reads the colours of the page. */
  restyle(): void {
    const style = getComputedStyle(this.canvas);
    [this.#text, this.#line, this.#faint, this.#accent] = [style.color, ...["--line", "--faint", "--accent"].map((name) => style.getPropertyValue(name))] as [string, string, string, string];
    const dark = style.colorScheme.includes("dark");
    if (dark === this.#dark) return;
    this.#dark = dark;
    this.#painted = "";
    for (let i = 0; i < 360; i++) {
      this.#colours[i] = `hsl(${i} 70% ${dark ? 65 : 42}%)`;
      this.#pixels[i] = pixel(i, 0.7, dark ? 0.65 : 0.42);
    }
  }

  /** paint draws a scene, unless it is what was drawn already, and returns how many states have a place. */
  paint(scene: Scene, now: number): number {
    const theme = document.documentElement.dataset["theme"];
    if (theme !== this.#theme) this.restyle();
    this.#theme = theme;
    const { x, y, scale } = scene.view;
    const what = `${scene.selected} ${scene.seenBy} ${x} ${y} ${scale} ${scene.view.follows} ${this.canvas.clientWidth} ${this.canvas.clientHeight} ${devicePixelRatio}`;
    if (what === this.#painted && now - scene.model.touchedAt > 2 * glide && now - this.#paintedAt < repaint) return this.#placed;
    this.#placed = this.#paint(scene, now);
    this.#paintedAt = now;
    const moved = Math.hypot(scene.view.x - x, scene.view.y - y) * scene.view.scale + Math.abs(scene.view.scale / scale - 1) * 1_000;
    this.#painted = moved > 0.05 ? "" : what.replace(`${x} ${y} ${scale}`, `${scene.view.x} ${scene.view.y} ${scene.view.scale}`);
    return this.#placed;
  }

  #paint(scene: Scene, now: number): number {
    const { canvas } = this;
    const g = this.#g;
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
    }
    const { view, model } = scene;
    if (view.follows) fit(view, model.rows.values(), w, h, 0.15);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    const many = model.rows.size > pixelsFrom;
    let placed = many ? this.#dots(scene, now, ratio) : 0;
    g.globalCompositeOperation = "destination-over"; // the grid is below the dots
    this.#grid(view, w, h);
    g.globalCompositeOperation = "source-over";
    this.#bands(scene, now, w, h);
    this.#lines(scene, now, w, h);
    if (!many) placed = this.#states(scene, now, w, h);
    else this.#frame(scene, now, w, h);
    this.#eyes(scene, now, w, h);
    return placed;
  }

  #states(scene: Scene, now: number, w: number, h: number): number {
    const { model, view: v, seenBy, seers } = scene;
    const g = this.#g;
    const { rows } = model;
    const eyes = seers.filter((s) => s.client === seenBy);
    const trails = rows.size <= trailsBelow;
    const size = rows.size > 300 ? 5 : 8;
    const p = { x: 0, y: 0 };
    let placed = 0;
    let colour = "";
    for (const row of rows.values()) {
      if (!where(row, now, p)) continue;
      placed++;
      const x = w / 2 + (p.x - v.x) * v.scale;
      const y = h / 2 - (p.y - v.y) * v.scale;
      if (!(x > -50 && y > -50 && x < w + 50 && y < h + 50)) continue;
      const next = this.#colours[Math.floor(row.hue)]!;
      if (next !== colour) g.fillStyle = colour = next;
      const alpha = seenBy ? visibility(model, seen(scene, eyes, row), row) : 1;
      if (trails && alpha > unseen && row.trail.length > 0 && now - row.changedAt < 4_000) {
        g.strokeStyle = colour;
        g.globalAlpha = 0.3 * alpha;
        g.beginPath();
        for (const q of row.trail) g.lineTo(w / 2 + (q.x - v.x) * v.scale, h / 2 - (q.y - v.y) * v.scale);
        g.lineTo(x, y);
        g.stroke();
      }
      g.globalAlpha = alpha;
      g.fillRect(Math.round(x - size / 2), Math.round(y - size / 2), size, size); // whole pixels need no smoothing
    }
    g.globalAlpha = 1;
    this.#frame(scene, now, w, h);
    return placed;
  }

  /** dots writes the pixels of many states over everything that is there. */
  #dots(scene: Scene, now: number, ratio: number): number {
    const { model, view: v, seenBy, seers } = scene;
    const { width, height } = this.canvas;
    if (this.#image?.width !== width || this.#image.height !== height) this.#image = this.#g.createImageData(width, height);
    const pixels = new Uint32Array(this.#image.data.buffer);
    pixels.fill(0);
    const eyes = seers.filter((s) => s.client === seenBy);
    const size = Math.round(3 * ratio);
    const [scale, half] = [v.scale * ratio, size / 2];
    const p = { x: 0, y: 0 };
    let placed = 0;
    for (const row of model.rows.values()) {
      if (!where(row, now, p)) continue;
      placed++;
      const x = Math.round(width / 2 + (p.x - v.x) * scale - half);
      const y = Math.round(height / 2 - (p.y - v.y) * scale - half);
      if (!(x >= 0 && y >= 0 && x + size <= width && y + size <= height)) continue;
      let colour = this.#pixels[Math.floor(row.hue)]!;
      if (seenBy) colour = (colour & 0xffffff) | (Math.round(255 * visibility(model, seen(scene, eyes, row), row)) << 24);
      for (let line = y * width + x, i = 0; i < size; i++, line += width) {
        for (let at = line; at < line + size; at++) pixels[at] = colour;
      }
    }
    this.#g.putImageData(this.#image, 0, 0);
    return placed;
  }

  /** frame draws a frame around the state that is selected. */
  #frame({ model, view: v, selected }: Scene, now: number, w: number, h: number): void {
    const g = this.#g;
    const p = { x: 0, y: 0 };
    const row = model.rows.get(selected);
    if (!row || !where(row, now, p)) return;
    g.strokeStyle = this.#text;
    g.lineWidth = 2;
    g.strokeRect(w / 2 + (p.x - v.x) * v.scale - 9, h / 2 - (p.y - v.y) * v.scale - 9, 18, 18);
    g.lineWidth = 1;
  }

  /** bands draws the borders of what eyes see. Of one client they are all there, of all clients only the outermost. */
  #bands({ model, view: v, seenBy, seers }: Scene, now: number, w: number, h: number): void {
    const g = this.#g;
    const eyes = seenBy ? seers.filter((s) => s.client === seenBy) : seers;
    if (eyes.length > namedEyes || !(v.scale > 0)) return;
    const used = new Set<string>();
    for (const row of model.rows.values()) if (row.about.interest) used.add(row.about.interest);
    const p = { x: 0, y: 0 };
    g.strokeStyle = g.fillStyle = this.#accent;
    g.font = "11px system-ui, sans-serif";
    for (const s of eyes) {
      if (!whereEye(model, s, now, p)) continue;
      const [x, y] = [w / 2 + (p.x - v.x) * v.scale, h / 2 - (p.y - v.y) * v.scale];
      for (const name of used) {
        const interest = model.interests.get(name);
        if (!interest || components(interest).length < 2) continue;
        const list = seenBy ? interest.bands : interest.bands.slice(-1);
        list.forEach((b, i) => {
          const r = b.within * v.scale;
          if (!(r > 3) || r > 20 * (w + h)) return;
          g.setLineDash(b === interest.bands.at(-1) ? [] : [4, 5]);
          g.globalAlpha = seenBy ? 0.75 : 0.4;
          g.beginPath();
          g.arc(x, y, r, 0, 2 * Math.PI);
          g.stroke();
          if (!seenBy) return;
          g.globalAlpha = 0.05;
          g.fill();
          g.globalAlpha = 1;
          g.fillText(`${number(b.within)}${b.rate ? `, ${number(b.rate)}/s` : ""}`, x + 3, y - r - 4 - 11 * (i % 2 && r - (list[i - 1]?.within ?? 0) * v.scale < 12 ? 1 : 0));
        });
      }
    }
    g.setLineDash([]);
    g.globalAlpha = 1;
  }

  /** lines draws who sees the selected state: a line from each eye of a client that does, fainter in further bands. */
  #lines({ model, view: v, seenBy, seers, selected, told }: Scene, now: number, w: number, h: number): void {
    const row = model.rows.get(selected);
    const [at, from] = [{ x: 0, y: 0 }, { x: 0, y: 0 }];
    if (!told || !row || !where(row, now, at)) return;
    const g = this.#g;
    g.strokeStyle = this.#accent;
    for (const s of seers) {
      const n = told.get(s.client);
      if (!n?.sees || s.row === row || (seenBy && seenBy !== s.client) || !whereEye(model, s, now, from)) continue;
      g.globalAlpha = 0.9 - (0.6 * (n.band - 1)) / n.bands;
      g.beginPath();
      g.moveTo(w / 2 + (from.x - v.x) * v.scale, h / 2 - (from.y - v.y) * v.scale);
      g.lineTo(w / 2 + (at.x - v.x) * v.scale, h / 2 - (at.y - v.y) * v.scale);
      g.stroke();
    }
    g.globalAlpha = 1;
  }

  #eyes({ model, view: v, seenBy, seers }: Scene, now: number, w: number, h: number): void {
    const g = this.#g;
    const p = { x: 0, y: 0 };
    g.font = "11px system-ui, sans-serif";
    for (const s of seers) {
      if (!whereEye(model, s, now, p)) continue;
      const [x, y] = [w / 2 + (p.x - v.x) * v.scale, h / 2 - (p.y - v.y) * v.scale];
      if (!(x > -50 && y > -50 && x < w + 50 && y < h + 50)) continue;
      g.globalAlpha = !seenBy || seenBy === s.client ? 1 : 0.3;
      g.strokeStyle = g.fillStyle = this.#accent;
      g.beginPath();
      g.ellipse(x, y, 9, 5.5, 0, 0, 2 * Math.PI);
      g.moveTo(x + 2.5, y);
      g.arc(x, y, 2.5, 0, 2 * Math.PI);
      g.lineWidth = 1.5;
      g.stroke();
      g.lineWidth = 1;
      g.fillStyle = this.#text;
      if (seers.length <= namedEyes || seenBy === s.client) g.fillText(plain(s.client, 24), x + 12, y + 4);
    }
    g.globalAlpha = 1;
  }

  /** grid draws lines at round numbers, and says which ones. */
  #grid(v: View, w: number, h: number): void {
    if (!(v.scale > 0)) return;
    const g = this.#g;
    const step = [1, 2, 5, 10].map((m) => m * 10 ** Math.floor(Math.log10(80 / v.scale))).find((s) => s * v.scale >= 60) ?? 1;
    g.strokeStyle = this.#line;
    g.fillStyle = this.#faint;
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
}

/** pixel returns a colour as ImageData has it on a machine whose lowest byte comes first, as all that browsers run on. */
function pixel(hue: number, saturation: number, lightness: number): number {
  const channel = (n: number) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (lightness - saturation * Math.min(lightness, 1 - lightness) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return (0xff000000 | (channel(4) << 16) | (channel(8) << 8) | channel(0)) >>> 0;
}

/** seen returns how a client sees a state: the selected one as its edge says, the others by where they are. */
function seen({ model, seenBy, selected, told }: Scene, eyes: Seer[], row: Row): Sight {
  const n = row.n === selected ? told?.get(seenBy) : undefined;
  if (n && n.bands > 0) return { sees: n.sees, distance: n.distance ?? Infinity, band: n.band > 0 ? n.band - 1 : n.bands };
  return sight(model, seenBy, eyes, row);
}

/** visibility returns how plainly a state is drawn that a client sees in some way. */
function visibility(model: Model, s: Sight, row: Row): number {
  if (!s.sees) return unseen;
  const bands = model.interests.get(row.about.interest ?? "")?.bands.length ?? 1;
  return s.band <= 0 ? 1 : 1 - (0.6 * s.band) / bands;
}
