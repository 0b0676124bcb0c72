/**
 * A Transport carries the datagrams of one connection. It may lose, double and reorder them. Its owner
 * sets `onDatagram` and `onClose` before anything else happens.
 */
export interface Transport {
  /** The largest datagram in bytes that arrives in one piece of the network. Larger ones may take longer. */
  readonly maxDatagramSize: number;

  /** Whether each datagram arrives, and in order, as long as the transport lasts. */
  readonly ordered?: boolean | undefined;

  /**
   * What the edge knows the session by, if the transport's handshake told it. The client only passes it
   * to the next transport.
   */
  readonly session?: Session | undefined;

  /** send takes a datagram for good. It never throws, and drops the datagram where it cannot be sent. */
  send(datagram: Uint8Array): void;

  /** A datagram, which is valid during the call. */
  onDatagram: (datagram: Uint8Array) => void;

  /** The transport ended by itself. */
  onClose: (info: CloseInfo) => void;

  close(): void;
}

/** A Session is what makes a new transport continue an old one. */
export interface Session {
  /** A secret: who has it has the session. */
  readonly token: string;
  /** The edge continues the session whose token the transport was given: its connection goes on. */
  readonly resumed: boolean;
}

/** A CloseInfo tells why a transport ended: what the edge said, or `lost` and what the browser says. */
export interface CloseInfo {
  readonly code: number;
  readonly reason: string;
}

/** The code of a transport that ended without one (RFC 6455, section 7.1.5). */
export const lost = 1006;

/** A DialError tells that a transport ended before it could be used. */
export class DialError extends Error {
  constructor(message: string, readonly info: CloseInfo) {
    super(message);
  }
}

export interface DialOptions {
  /** Ends the attempt. */
  readonly signal: AbortSignal;
  /** The token of the session to continue. */
  readonly resume?: string | undefined;
  /** Made for the WebTransport, such as serverCertificateHashes. Without them the edge is asked. */
  readonly webTransport?: WebTransportOptions | undefined;
  /** Instead of the global WebSocket, which Node has from version 22 on. */
  readonly WebSocket?: typeof WebSocket | undefined;
}

/** Dial opens a transport to the edge at a URL, or throws. */
export type Dial = (url: URL, options: DialOptions) => Promise<Transport>;

/** The bytes that wait for a transport at most, like those in the buffer of a socket. */
export const bufferMax = 256 << 10;

/** Whether a URL asks for a connection that is not encrypted. */
export const isPlain = (url: URL): boolean => url.protocol === "ws:" || url.protocol === "http:";

/** withScheme returns the URL of an edge for a transport; the path is /dnp unless the URL has one. */
export function withScheme(url: URL, scheme: string): URL {
  // Setting URL.protocol does not change between schemes that browsers know and others.
  const to = new URL(scheme + url.href.slice(url.protocol.length));
  if (to.pathname === "/") to.pathname = "/dnp";
  return to;
}
