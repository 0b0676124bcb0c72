/**
 * Players that another program drives: it writes a Request on a line of stdin, and reads Happenings and Answers on lines of stdout.
 * The tests of the promises (internal/promises) start it in place of the client in Go. It ends with stdin.
 */
import { createInterface } from "node:readline";
import { CommandError, connect, WriteError, type Client, type Settable, type State, type TypeName } from "../src/node.js";

interface Request {
  readonly n: number; // comes back in the Answer
  readonly do: keyof typeof actions;
  readonly player: number;
  readonly state: number;
  readonly url: string;
  readonly data: string; // base64
  readonly name: string | number; // of a value, or a command
  readonly to: Settable | "NaN";
  readonly values: { type: TypeName; value: Settable; name?: string }[];
}

interface Player {
  readonly client: Client;
  readonly open: Promise<void>; // rejects if the edge does not accept the connection
}

const players = new Map<number, Player>();
const states: State[] = []; // by number, which begins at 1
const numbers = new Map<State, number>();

const say = (line: object): void => void process.stdout.write(JSON.stringify(line) + "\n");
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
const encoded = (state: State): string[] => Array.from({ length: state.length }, (_, i) => text(state.encoded(i)));
const failure = (error: unknown): object => ({
  error: String(error instanceof Error ? error.message : error),
  code: error instanceof CommandError || error instanceof WriteError ? error.code : undefined,
});

/** number returns the number of a state, of which it tells what does not change. */
function number(state: State): number {
  let n = numbers.get(state);
  if (n === undefined) {
    n = states.push(state);
    numbers.set(state, n);
    const { key, message, layout, writable } = state;
    say({ state: n, key, message: text(message), types: layout.types.map(({ name }) => name), names: layout.names, writable, values: encoded(state) });
  }
  return n;
}

function play(player: number, url: string): Player {
  const client = connect(url, { reconnect: false });
  client.on("link", (state) => say({ player, event: "link", state: number(state), values: encoded(state) }));
  client.on("change", (state, index) => say({ player, event: "change", state: number(state), index, value: text(state.encoded(index)) }));
  client.on("unlink", (state) => say({ player, event: "unlink", state: number(state) }));
  client.on("message", (data) => say({ player, event: "message", data: text(data) }));
  const open = new Promise<void>((resolve, reject) => {
    client.on("open", resolve);
    client.on("close", ({ reason, detail }) => reject(new Error(`${reason}: ${detail}`)));
  });
  client.on("close", ({ reason, detail }) => say({ player, event: "close", reason, detail }));
  return { client, open };
}

/** set changes a value and tells at once that it has; the promise ends when the game has the value. */
function set({ player, state: id, name, to }: Request): Promise<void> {
  const state = states[id - 1]!;
  const written = state.set(name, to === "NaN" ? NaN : to);
  const index = state.layout.index(name);
  say({ player, event: "set", state: id, index, value: text(state.encoded(index)) });
  written.catch((error: unknown) => say({ player, event: "refused", state: id, index, ...failure(error) }));
  return written;
}

const actions = {
  connect: async ({ player, url }: Request): Promise<void> => {
    players.set(player, play(player, url));
    await players.get(player)!.open;
  },
  set: (r: Request): void => void set(r),
  confirm: set,
  send: ({ player, data }: Request): void => players.get(player)!.client.send(Buffer.from(data, "base64")),
  offer: ({ player, data, values }: Request): number => number(players.get(player)!.client.offer(Buffer.from(data, "base64"), values)),
  withdraw: ({ player, state }: Request): void => players.get(player)!.client.withdraw(states[state - 1]!),
  command: async ({ state, name, data }: Request): Promise<string> => text(await states[state - 1]!.command(String(name), Buffer.from(data, "base64"))),
  close: ({ player }: Request): Promise<void> => players.get(player)!.client.close(),
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line) as Request;
  void (async () => {
    try {
      say({ n: request.n, result: await actions[request.do](request) });
    } catch (error) {
      say({ n: request.n, ...failure(error) });
    }
  })();
}).on("close", () => process.exit());
