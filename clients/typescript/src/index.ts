/**
 * A client of dnprelay for browsers, and for programs with a WebSocket:
 *
 *     const client = connect("wss://edge.example:3480", { token });
 *     client.on("link", (state) => console.log(state.key, state.get(0)));
 *
 * `@dnprelay/client/node` adds UDP. The protocol itself is in `Connection`, without input, output and clock.
 */
import type { Client, Options } from "./client.js";
import { connectWith } from "./connect.js";
import { dialWebSocket } from "./websocket.js";
import { dialWebTransport } from "./webtransport.js";

/** connect connects to the edge at a URL, such as `wss://edge.example:3480`, and again whenever that ends. */
export function connect(url: string | URL, options?: Options): Client {
  return connectWith({ webtransport: dialWebTransport, websocket: dialWebSocket }, url, options);
}

export { Client, type Closing, type Clock, type Events, type Options, type Token, type TransportName, type ValueSpec } from "./client.js";
export { CommandError, type CommandCode } from "./command.js";
export { connectWith, type Transports } from "./connect.js";
export { Connection, type CloseReason, type ConnectionConfig, type Output, type Stats } from "./connection.js";
export { Layout, State, type Description, type Field, type Fields } from "./state.js";
export { type Past } from "./past.js";
export { DialError, type CloseInfo, type Dial, type DialOptions, type Session, type Transport } from "./transport.js";
export { valueTypes, type Components, type Settable, type TypeName, type Value, type ValueType } from "./value.js";
export { WriteError, type WriteCode } from "./writes.js";
