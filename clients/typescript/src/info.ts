/** What an edge says about its listeners, under the path of its WebSockets and `/info`. */
import { isPlain, withScheme } from "./transport.js";

const timeout = 1_000; // ms
const textMax = 4_096; // characters
const hashesMax = 16;

/** Where an edge listens for WebTransport. */
export interface WebTransportInfo {
  readonly port: number;
  readonly path: string;
  /** SHA-256 of certificates that no authority has signed; undefined if there is a real one. */
  readonly hashes: readonly Uint8Array[] | undefined;
}

/**
 * webTransportInfo asks the edge at a URL where it listens for WebTransport. It returns null if the edge says
 * that it does not, and undefined if there is no answer in time, or none that can be read.
 */
export async function webTransportInfo(url: URL): Promise<WebTransportInfo | null | undefined> {
  const to = withScheme(url, isPlain(url) ? "http:" : "https:");
  to.pathname = to.pathname.replace(/\/$/, "") + "/info";
  to.search = to.hash = "";
  try {
    const answer = await fetch(to, { signal: AbortSignal.timeout(timeout), cache: "no-store", credentials: "omit" });
    return answer.ok ? parseInfo(await answer.text()) : undefined;
  } catch {
    return undefined;
  }
}

interface Info {
  webtransport?: { port: number; path: string; certificateHashes?: string[] };
}

/** parseInfo reads the JSON of an edge. It throws if it is none. */
export function parseInfo(text: string): WebTransportInfo | null | undefined {
  if (text.length > textMax) return undefined;
  const { webtransport } = JSON.parse(text) as Info;
  if (!webtransport) return null;
  const { port, path, certificateHashes: hashes } = webtransport;
  if (!(Number.isInteger(port) && port > 0 && port < 65_536) || !/^\//.test(path)) return undefined;
  if (hashes === undefined) return { port, path, hashes };
  if (!Array.isArray(hashes) || hashes.length > hashesMax || !hashes.every((hash) => /^[0-9a-f]{64}$/i.test(hash))) return undefined;
  return { port, path, hashes: hashes.map((hash) => Uint8Array.from(hash.match(/../g)!, (byte) => parseInt(byte, 16))) };
}
