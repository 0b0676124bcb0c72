/** The client for Node: all of `@dnprelay/client`, and UDP for `udp://host:port`. */
import type { Client, Options } from "./client.js";
import { connectWith } from "./connect.js";
import { dialUDP } from "./udp.js";
import { dialWebSocket } from "./websocket.js";
import { dialWebTransport } from "./webtransport.js";

export * from "./index.js";

/** connect connects to the edge at a URL, such as `udp://edge.example:3413`, and again whenever that ends. */
export function connect(url: string | URL, options?: Options): Client {
  return connectWith({ webtransport: dialWebTransport, websocket: dialWebSocket, udp: dialUDP }, url, options);
}
