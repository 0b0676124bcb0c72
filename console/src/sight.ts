// Who sees what, by distance: the bands of interests around the eyes of clients.
import type { Eye, Interest, Model, Row } from "./model.js";

/** In the key of an eye that all clients have it stands for the name of the client. */
const clientInEye = "{client}";
/** So many eyes at most are looked at. */
export const eyesMax = 1_000;

/** valueNamed returns the index of a value by its name or its index in digits; -1 if there is none. */
export function valueNamed(row: Row, name: string): number {
  const i = name === "" ? -1 : row.about.names.indexOf(name);
  if (i >= 0) return i;
  return /^\d+$/.test(name) && Number(name) < row.about.types.length ? Number(name) : -1;
}

/** components returns which components of a place of an interest count for distances. */
export function components(interest: Interest): number[] {
  return [...(interest.axes || "xyz")].map((axis) => "xyz".indexOf(axis));
}

export interface Seer {
  client: string;
  eye: Eye;
  row: Row | undefined; // where the eye is, if it is at a state
  value: number; // of row
}

/** eyeAt returns the components of where an eye is. */
export function eyeAt(s: Seer): (number | null)[] {
  const at = s.row ? s.row.values[s.value] : s.eye.at;
  return Array.isArray(at) ? (at as (number | null)[]) : [];
}

/** seer returns where an eye is; undefined if that is not known. */
function seer(model: Model, client: string, eye: Eye): Seer | undefined {
  if (!eye.key) return { client, eye, row: undefined, value: -1 };
  const row = model.byKey.get(eye.key);
  if (!row) return undefined;
  const value = valueNamed(row, eye.value || (model.interests.get(row.about.interest ?? "")?.at ?? ""));
  return value < 0 ? undefined : { client, eye, row, value };
}

/** pattern matches the keys of the states that are eyes of clients who were given none. */
function pattern(key: string): RegExp {
  const [first = "", ...rest] = key.split(clientInEye).map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${[`${first}([A-Za-z0-9_-]{1,64})${rest.shift() ?? ""}`, ...rest].join("\\1")}$`);
}

/** seers returns where the eyes of clients are, of whom those come first whom somebody gave eyes. */
export function seers(model: Model): Seer[] {
  const found: Seer[] = [];
  const add = (client: string, eye: Eye) => {
    const s = seer(model, client, eye);
    if (s && found.length < eyesMax) found.push(s);
  };
  for (const [client, eyes] of model.eyes) eyes.forEach((eye) => add(client, eye));
  for (const eye of model.everyone) {
    const match = pattern(eye.key ?? "");
    for (const key of model.byKey.keys()) {
      const client = match.exec(key)?.[1];
      if (client && !model.eyes.has(client)) add(client, { ...eye, key });
    }
  }
  return found;
}

/** inAudience reports whether a client may see a state. */
export function inAudience(model: Model, client: string, row: Row): boolean {
  const { audience, clients, groups } = row.about;
  const named = clients?.includes(client) || (model.groups.get(client) ?? []).some((g) => groups?.includes(g)) || false;
  return audience === "all" || (audience === "all-but" ? !named : audience === "listed" && named);
}

export interface Sight {
  sees: boolean;
  distance: number; // Infinity if the client has no eye, or the state no place
  band: number; // -1 for a state without interest
}

/** sight returns how a client sees a state. Its eyes are among all. */
export function sight(model: Model, client: string, all: Seer[], row: Row): Sight {
  if (!inAudience(model, client, row)) return { sees: false, distance: Infinity, band: -1 };
  const interest = model.interests.get(row.about.interest ?? "");
  if (!interest) return { sees: true, distance: Infinity, band: -1 };
  const place = row.values[valueNamed(row, interest.at)];
  let distance = Infinity;
  if (Array.isArray(place)) {
    const axes = components(interest).filter((c) => c < place.length);
    for (const s of all) {
      if (s.client !== client) continue;
      const from = eyeAt(s);
      const d = Math.hypot(...axes.map((c) => (place[c] ?? NaN) - (from[c] ?? NaN)));
      if (d < distance) distance = d;
    }
  }
  const band = interest.bands.findIndex((b) => distance <= b.within);
  return { sees: band >= 0, distance, band: band < 0 ? interest.bands.length : band };
}
