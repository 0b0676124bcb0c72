import { Client, type Options, type TransportName } from "./client.js";
import type { Dial } from "./transport.js";

/** The transports that an entry point of the package has, in the order in which "auto" tries them. */
export type Transports = Partial<Record<TransportName, Dial>>;

/** dialsFor returns what to dial for a URL. */
export function dialsFor(url: URL, transport: "auto" | TransportName, transports: Transports): Dial[] {
  let names: TransportName[] = [transport as TransportName];
  if (transport === "auto") {
    if (url.protocol === "udp:") names = ["udp"];
    else if (!globalThis.WebTransport) names = ["websocket"];
    else names = ["webtransport", "websocket"];
  }
  return names.map((name) => {
    const dial = transports[name];
    if (!dial) throw new Error(`connect ${url}: there is no transport ${name} here`);
    return dial;
  });
}

/** connectWith returns a client that connects to the edge at a URL with one of these transports. */
export function connectWith(transports: Transports, url: string | URL, options: Options = {}): Client {
  const to = new URL(url);
  return new Client(to, dialsFor(to, options.transport ?? "auto", transports), options);
}
