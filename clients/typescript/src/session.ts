/** What an edge says about a session beside its datagrams: a greeting first, and a code and a reason at the end. */
import type { CloseInfo, Session } from "./transport.js";

/** The codes of an edge that ends a transport. After any other one the transport counts as lost. */
export const CloseCode = {
  /** The connection ended; the edge said so in a datagram, too. */
  over: 1000,
  /** The edge leaves. Another one continues the session. */
  leaving: 1012,
  /** The edge takes no clients for a while. */
  full: 1013,
  /** No edge has the session. */
  unknown: 4000,
  /** Another transport came with the token of this session. */
  replaced: 4001,
} as const;

const greetingMax = 256; // characters
const tokenPattern = /^[0-9a-f]{64}$/;

/** parseGreeting reads the first message of an edge, `{"token":"<64 hex digits>","resumed":true}`. */
export function parseGreeting(text: string): Session | undefined {
  if (text.length > greetingMax) return undefined;
  try {
    const { token, resumed } = JSON.parse(text) as Partial<Session>;
    return typeof token === "string" && tokenPattern.test(token) ? { token, resumed: resumed === true } : undefined;
  } catch {
    return undefined; // no JSON, or null
  }
}

/**
 * parseClosing reads the last frame of an edge on the stream of a WebTransport, `{"code":1012,"reason":"leaving"}`. It says
 * what the code of the WebTransport should: browsers miss that where the server stops reading at the same time.
 */
export function parseClosing(text: string): CloseInfo | undefined {
  if (text.length > greetingMax) return undefined;
  try {
    const { code, reason } = JSON.parse(text) as Partial<CloseInfo>;
    return Number.isInteger(code) && typeof reason === "string" ? { code: code!, reason } : undefined;
  } catch {
    return undefined;
  }
}

/** An edge does not keep a client away for longer. The number is arbitrary. */
const retryAfterMax = 60_000;

/** retryAfter returns the ms that the reason of a close asks the client to wait, as in `full; retry-after=1000`. */
export function retryAfter(reason: string): number | undefined {
  const ms = /; *retry-after=(\d{1,9})$/.exec(reason)?.[1];
  return ms === undefined ? undefined : Math.min(retryAfterMax, Number(ms));
}
