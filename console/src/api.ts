// What the server answers, and how the page asks.
import { useEffect, useState } from "preact/hooks";

export interface Asked<T> {
  value: T | undefined;
  error: string;
}

/** ask asks the server. It throws an Error with the text of the server. */
export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  const answer = await fetch(path, { signal: signal ?? null });
  return read<T>(answer);
}

async function read<T>(answer: Response): Promise<T> {
  const body = await answer.json().catch(() => undefined);
  if (!answer.ok) throw new Error(body?.error?.message ?? `the server answered ${answer.status}`);
  return body as T;
}

/** publish does an operation on a space. It throws an Error with what the relay says. */
export async function publish(space: string, op: object): Promise<void> {
  const body = await post<{ error?: { code: string; message: string }; ops?: { error?: { message: string } }[] }>(`api/publish?space=${encodeURIComponent(space)}`, op);
  const error = body.error ?? body.ops?.find((o) => o.error)?.error;
  if (error) throw new Error(error.message);
}

/** drain has an edge leave, and returns what becomes of its sessions. It throws an Error with what the server says. */
export async function drain(node: string): Promise<string> {
  const { sessions, reason } = await post<{ sessions: string; reason?: string }>(`api/drain?node=${encodeURIComponent(node)}`, {});
  if (sessions !== "handed_over") return "it closes its sessions and ends";
  return reason ? `it ends, and closes the sessions that it cannot hand over: ${reason}` : "it hands its sessions over and ends";
}

async function post<T>(path: string, body: object): Promise<T> {
  return read<T>(await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));
}

/** useAsked asks again and again while the component is there. An answer stays until the next one. */
export function useAsked<T>(path: string, every = 1_000): Asked<T> {
  const [asked, set] = useState<Asked<T>>({ value: undefined, error: "" });
  useEffect(() => {
    set({ value: undefined, error: "" });
    if (path === "") return;
    const abort = new AbortController();
    let timer = 0;
    const turn = async () => {
      try {
        if (!document.hidden) {
          const value = await ask<T>(path, abort.signal);
          set({ value, error: "" });
        }
      } catch (error) {
        if (!abort.signal.aborted) set((old) => ({ ...old, error: String((error as Error).message) }));
      }
      if (!abort.signal.aborted) timer = window.setTimeout(turn, every);
    };
    void turn();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, every]);
  return asked;
}

export interface List<T> {
  entries: T[] | null;
  next?: string;
}

export interface Space {
  space: string;
  holder: string;
  shard: number;
  serving: boolean;
  epoch: number;
  seq: number;
  since_ms: number;
  durable: boolean;
  states: number;
  views: number;
  clients: number;
  publishes: number;
  writes: number;
  batches: number;
  batch_bytes: number;
}

export interface Node {
  node: string;
  role: string;
  version?: string;
  uptime_ms?: number;
  ready?: boolean;
  draining?: boolean;
  workers?: number;
  waiting?: number;
  spaces?: number;
  clients?: number;
  shards?: number;
  listen?: string[] | null;
  missing?: string[]; // what it needs and does not have
  silent?: boolean; // gossip knows it, and it does not answer
  gone_ms?: number; // so long ago it was there
}

export interface Client {
  client: string;
  session: string;
  edge: string;
  address: string;
  carrier: string;
  age_ms: number;
  links: { up: number; offered: number; queued: number; own: number; max: number; ids_left: number; waiting: number; oldest_ms: number };
  path: { heard_ms: number; loss: number; rtt_ms: number; rate: number; slowed: boolean; used: number; away: boolean };
  declined: number;
  writes: number;
  near?: Nearness; // in the answer to a question who is near
}

/** What an edge says of the eyes of a client and a state. */
export interface Nearness {
  eyes: number;
  distance?: number; // from the nearest eye; missing if the state, or every eye, is nowhere
  band: number; // 1 is the nearest, 0 beyond all
  bands: number;
  sees: boolean; // the client belongs to the audience, too
}

export interface Reason {
  code: string;
  blocks?: boolean;
  text: string;
}

export interface Why {
  space: string;
  client: string;
  key: string;
  reasons: Reason[] | null;
}
