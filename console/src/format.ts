// How things look as text. All of it comes from outside, so what has no look of its own gets one.

const invisible = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/gu;

/** plain returns text in which every character is seen, at most `max` long. */
export function plain(text: string, max = 200): string {
  const cut = text.length > max ? `${text.slice(0, max)}…` : text;
  return cut.replace(invisible, (c) => `\\u${c.codePointAt(0)!.toString(16).padStart(4, "0")}`);
}

/** number returns a number with at most `digits` behind the point. */
export function number(x: number, digits = 3): string {
  if (!Number.isFinite(x)) return String(x);
  if (Number.isInteger(x)) return String(x);
  return Math.abs(x) >= 1e6 || Math.abs(x) < 1e-3 ? x.toPrecision(4) : String(Number(x.toFixed(digits)));
}

/** value returns a value of a state. */
export function value(v: unknown): string {
  if (v === null || v === undefined) return "null";
  if (typeof v === "number") return number(v);
  if (typeof v === "string") return plain(v);
  if (Array.isArray(v)) return v.map((x) => (typeof x === "number" ? number(x) : value(x))).join(", ");
  return Object.entries(v as object).map(([k, x]) => `${plain(k, 40)}: ${value(x)}`).join(", ");
}

export function bytes(n: number): string {
  if (n < 1024) return `${Math.round(n)} B`;
  if (n < 1024 ** 2) return `${number(n / 1024, 1)} KiB`;
  return `${number(n / 1024 ** 2, 1)} MiB`;
}

/** span returns a time in ms as people say it. */
export function span(ms: number): string {
  if (!Number.isFinite(ms)) return "";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${number(ms / 1_000, 1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1_000)} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
}

const two = (n: number) => String(n).padStart(2, "0");

/** clock returns the time of day here. */
export function clock(at: Date): string {
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** moment returns the time of day of a time in RFC 3339, here, with milliseconds. What is no time stays as it is. */
export function moment(text: string): string {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? plain(text, 40) : `${clock(at)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** count returns a number with what it counts. */
export function count(n: number, one: string, many = `${one}s`): string {
  return `${n} ${n === 1 ? one : many}`;
}

/** The part of a key that many share: npc of npc.17 and of npc17. */
export function family(key: string): string {
  return key.split(/[.\d/:]/, 1)[0] || key;
}

/** hue returns an angle in the colour circle for a text, far from those of most other texts. */
export function hue(text: string): number {
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  return (((h >>> 0) * 137.508) % 360 + 360) % 360;
}
