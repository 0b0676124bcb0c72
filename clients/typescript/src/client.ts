import { concat, copy } from "./bytes.js";
import { Connection, type CloseReason } from "./connection.js";
import { Emitter, report } from "./emitter.js";
import { leave } from "./leave.js";
import { ownMax } from "./links.js";
import { CloseCode, retryAfter } from "./session.js";
import { describe, Layout, State, type Description } from "./state.js";
import { DialError, lost, type CloseInfo, type Dial, type Transport } from "./transport.js";
import { encodeValue, typeNamed, type Settable, type TypeName } from "./value.js";
import { connectionClose } from "./wire.js";

export type TransportName = "webtransport" | "websocket" | "udp";

/** What a client shows to log in: a token, or the whole login message of a game's own service. */
export type Token = string | Uint8Array;

export interface Options {
  /**
   * Sent as the first reliable message. A function is asked for each new session, because edges take a
   * token once.
   */
  token?: Token | (() => Token | Promise<Token>) | undefined;
  /** Default "auto": WebTransport where there is one, and WebSocket where that does not get through. */
  transport?: "auto" | TransportName | undefined;
  /** Whether to connect again after the connection ended. Default true. */
  reconnect?: boolean | undefined;
  /** The shortest time between two sendings of values that this client sets, in ms. Default 30. */
  updateInterval?: number | undefined;
  /** Reads the link messages of states. The default takes the text for the key. */
  describe?: ((message: Uint8Array) => Description) | undefined;
  /**
   * Whether the server is no edge of dnprelay but another one of DNP, which takes no hello. Values that this client sets are
   * then sent once, as other clients of DNP do. Default false.
   */
  plain?: boolean | undefined;
  /** For WebTransport, such as serverCertificateHashes. */
  webTransport?: WebTransportOptions | undefined;
  /** Instead of the global WebSocket. */
  WebSocket?: typeof WebSocket | undefined;
  /** The clock and the timers, for tests. */
  clock?: Clock | undefined;
}

/** A Clock tells the time in ms, and calls back. `after` returns what cancels the call. */
export interface Clock {
  now(): number;
  after(ms: number, call: () => void): () => void;
}

const systemClock: Clock = {
  now: () => performance.now(),
  after: (ms, call) => {
    const timer = setTimeout(call, ms);
    return () => clearTimeout(timer);
  },
};

/** A Closing tells why a connection ended, or could not be made. */
export interface Closing {
  readonly reason: CloseReason;
  /** What the transport said. */
  readonly detail?: string | undefined;
  /** In how many ms the client connects again; undefined if it does not. */
  readonly retryIn?: number | undefined;
  /** Reliable messages that the edge has not acknowledged, commands among them. They may have arrived, or not. */
  readonly unacknowledged: number;
}

export interface Events {
  /** The edge accepted the connection. */
  open: () => void;
  /** The edge offers a state, or took one of this client. */
  link: (state: State) => void;
  /** A value of a state has changed. */
  change: (state: State, index: number) => void;
  /** A state is gone, or the edge refused one of this client. Its values stay as they were. */
  unlink: (state: State) => void;
  /** A message, which belongs to the handler. */
  message: (data: Uint8Array, reliable: boolean) => void;
  close: (closing: Closing) => void;
}

/** A ValueSpec makes a value of an own state. */
export interface ValueSpec {
  readonly type: TypeName;
  readonly value: Settable;
  readonly name?: string;
}

/** Times in ms that an attempt takes at most; the shorter one where there is another transport to try. */
const dialTimeout = 4_000;
const dialTimeoutFirst = 2_000;

/** A transport that lasted for so long was a good one: the pauses begin anew. */
const steadyAfter = 10_000;

/** For so long an edge may hear, late, of a transport that this client gave up. */
const lateness = 10_000;

/**
 * backoff returns the pause in ms before attempt n, which counts from 0: a quarter of a second, twice as
 * long each time, up to 15 s. Half of it is random, so that the clients of an edge that ended do not come
 * all at once.
 */
export function backoff(n: number, random: number): number {
  const longest = Math.min(15_000, 250 * 2 ** Math.min(n, 10));
  return longest * (0.5 + random / 2);
}

/** The client tries again so soon after a transport ended that was a good one. */
const quickMax = 50;

/**
 * pauseAfter returns the pause in ms before attempt n after a transport ended: at first what the edge asks
 * for, or next to nothing. If it asks for a pause, half as long again is random.
 */
export function pauseAfter(n: number, info: CloseInfo, random: number): number {
  const asked = retryAfter(info.reason);
  if (n === 0 && asked === undefined) return quickMax * random;
  return Math.max((asked ?? 0) * (1 + random / 2), n === 0 ? 0 : backoff(n - 1, random));
}

/** spokenBy returns what an edge said instead of opening a transport, if an edge did. */
function spokenBy(error: unknown): CloseInfo | undefined {
  const codes: readonly number[] = Object.values(CloseCode);
  return error instanceof DialError && codes.includes(error.info.code) ? error.info : undefined;
}

/** After these the client does not connect again. */
const finalReasons: readonly CloseReason[] = ["local", "protocol", "replaced"];

/** What is told of the end of a transport. */
const told = (info: CloseInfo): string => info.reason || `closed with code ${info.code}`;

/** Tokens of dnprelay are wrapped: "DNPA", version 1, u16 size. */
export function loginMessage(token: Token): Uint8Array {
  if (typeof token !== "string") return token;
  const bytes = new TextEncoder().encode(token);
  return concat([Uint8Array.of(0x44, 0x4e, 0x50, 0x41, 1, bytes.length, bytes.length >> 8), bytes]);
}

/** A Client keeps a connection to an edge: it dials, drives the protocol, and connects again. */
export class Client extends Emitter<Events> {
  /** The states that have a link, by key. */
  readonly states: ReadonlyMap<string, State>;

  readonly #states = new Map<string, State>();
  readonly #own = new Set<State>();
  readonly #clock: Clock;
  #dials: Dial[];
  #connection: Connection | undefined;
  #transport: Transport | undefined;
  #resume: string | undefined;
  #attempts = 0;
  #attachedAt = Infinity; // when the transport came
  #abandonedAt = -Infinity; // when an attempt with the token failed, of which the edge may hear yet
  #dialing = false;
  #closed = false;
  #left: Promise<void> = Promise.resolve();
  #woken = false;
  #cancelTimer = () => {};
  #timerAt = Infinity;
  #cancelRetry = () => {};
  #closing: CloseInfo | undefined; // how the transport ended, until there is another one

  /** Use `connect`. @internal */
  constructor(readonly url: URL, dials: readonly Dial[], private readonly options: Options) {
    super();
    this.states = this.#states;
    this.#clock = options.clock ?? systemClock;
    this.#dials = [...dials];
    queueMicrotask(() => void this.#dial()); // after the application has added its handlers
  }

  /** Whether messages can be sent. */
  get open(): boolean {
    return this.#connection?.phase === "established";
  }

  /** The mean time from a reliable message to its acknowledgement, in ms; 0 if it is not known. */
  get roundTrip(): number {
    return this.#connection?.roundTrip ?? 0;
  }

  /** send sends a reliable message. It throws if there is no connection or too much waits. */
  send(data: Uint8Array | string): void {
    if (!this.open) throw new Error("send: there is no connection");
    this.#connection!.send(bytesOf(data));
    this.#wake();
  }

  /** sendUnreliable sends a message once. It reports false if it drops the message. */
  sendUnreliable(data: Uint8Array | string): boolean {
    const sent = (this.#transport && this.#connection?.sendUnreliable(bytesOf(data))) ?? false;
    this.#wake();
    return sent;
  }

  /** offer makes a state of this client, which it offers to the edge now and after each reconnection. */
  offer(message: Uint8Array | string, values: readonly ValueSpec[]): State {
    if (this.#own.size >= ownMax) throw new Error(`offer: the client has ${ownMax} states already`);
    const types = values.map((v) => typeNamed(v.type));
    const bytes = bytesOf(message);
    if (bytes.length === 0 || values.length === 0) throw new RangeError("offer: the link message or the state is empty");
    const layout = new Layout(types, values.map((v, i) => v.name ?? String(i)));
    const encoded = values.map((v, i) => encodeValue(types[i]!, v.value));
    const state = new State({ key: this.#describe(bytes).key, message: bytes, layout, values: encoded, own: true, writable: true });
    this.#own.add(state);
    if (this.open) this.#connection!.offer(state);
    this.#wake();
    return state;
  }

  /** withdraw ends a state of this client. */
  withdraw(state: State): void {
    if (this.#own.delete(state)) this.#connection?.withdraw(state);
    this.#wake();
  }

  /**
   * close ends the connection for good. It tells the edge at once, and where that may get lost, again until the edge
   * knows, a second at most. Then the promise resolves; it never rejects.
   */
  close(): Promise<void> {
    this.#closed = true;
    this.#cancelRetry();
    this.#cancelTimer();
    const transport = this.#transport;
    if (transport && this.open && !transport.ordered) {
      this.#transport = undefined;
      this.#left = leave(transport, this.roundTrip, this.#clock);
      this.#connection!.end("local");
    } else {
      this.#connection?.close();
      this.#transport?.close();
    }
    return this.#left;
  }

  async #dial(): Promise<void> {
    if (this.#closed || this.#dialing) return;
    this.#dialing = true;
    try {
      const transport = await this.#dialAny();
      let info = undefined as CloseInfo | undefined;
      transport.onClose = (early) => (info = early);
      const resumed = transport.session?.resumed === true;
      const login = resumed ? undefined : await this.#login(transport);
      if (this.#closed || (resumed && !this.open)) {
        transport.close();
        throw new Error("the session has ended meanwhile");
      }
      this.#attach(transport, resumed, login);
      this.#dialing = false;
      if (info) transport.onClose(info);
    } catch (error) {
      this.#dialing = false;
      if (this.#closed) return;
      const said = spokenBy(error);
      const detail = String(error instanceof Error ? error.message : error);
      if (this.open) this.#lost(said ?? { code: lost, reason: detail }); // a session waits for a transport, until it gives up
      else this.#failed(said?.code === CloseCode.full ? "rejected" : "lost", detail, said);
    }
  }

  /** login returns the login message, or closes the transport that it would be for. */
  async #login(transport: Transport): Promise<Uint8Array | undefined> {
    const { token } = this.options;
    try {
      const value = await (typeof token === "function" ? token() : token);
      return value === undefined ? undefined : loginMessage(value);
    } catch (error) {
      transport.close();
      throw error;
    }
  }

  /**
   * dialAny tries one transport after the other, and begins with that one the next time. What an edge says
   * about the session holds for all transports.
   */
  async #dialAny(): Promise<Transport> {
    let failure: unknown;
    for (const dial of this.#dials) {
      const abort = new AbortController();
      const last = dial === this.#dials.at(-1);
      const cancel = this.#clock.after(last ? dialTimeout : dialTimeoutFirst, () => abort.abort());
      const resume = this.#resume;
      try {
        const { webTransport, WebSocket } = this.options;
        const transport = await dial(this.url, { signal: abort.signal, resume, webTransport, WebSocket });
        this.#dials = [dial, ...this.#dials.filter((other) => other !== dial)];
        return transport;
      } catch (error) {
        failure = error;
        if (resume !== undefined) this.#abandonedAt = this.#clock.now();
        if (spokenBy(error)) break;
      } finally {
        cancel();
      }
    }
    throw failure;
  }

  #attach(transport: Transport, resumed: boolean, login: Uint8Array | undefined): void {
    if (!resumed) this.#connection?.end("lost"); // it waited for a transport to its session
    if (this.#closed) return transport.close();
    this.#transport = transport;
    this.#resume = transport.session?.token;
    this.#attachedAt = this.#clock.now();
    this.#closing = undefined;
    if (resumed) this.#connection!.resume(this.#clock.now(), transport.ordered);
    else this.#begin(login);
    transport.onDatagram = (datagram) => {
      if (this.#transport !== transport) return; // it is closing
      this.#connection!.receive(this.#clock.now(), datagram);
      this.#drive();
    };
    transport.onClose = (info) => {
      if (this.#transport === transport) this.#lost(info);
    };
    this.#drive();
  }

  /** describe reads a link message, as text if the application cannot. */
  readonly #describe = (message: Uint8Array): Description => {
    try {
      return (this.options.describe ?? describe)(message);
    } catch (error) {
      report(error);
      return describe(message);
    }
  };

  /** begin begins a new session. */
  #begin(login: Uint8Array | undefined): void {
    const { updateInterval, plain } = this.options;
    const { maxDatagramSize, ordered } = this.#transport!;
    const datagramMax = Math.min(1_200, maxDatagramSize);
    const connection: Connection = new Connection({ login, datagramMax, updateInterval, plain, ordered, describe: this.#describe }, {
      send: (datagram) => this.#transport?.send(datagram),
      ready: () => this.#wake(),
      connected: () => {
        for (const state of this.#own) connection.offer(state);
        this.emit("open");
      },
      closed: (reason) => this.#ended(reason),
      message: (data, reliable) => this.emit("message", copy(data), reliable),
      linked: (state) => {
        this.#states.set(state.key, state);
        this.emit("link", state);
      },
      changed: (state, index) => this.emit("change", state, index),
      unlinked: (state) => {
        if (this.#states.get(state.key) === state) this.#states.delete(state.key);
        this.emit("unlink", state);
      },
    });
    this.#connection = connection;
  }

  /** lost notes that the transport ended. Where an edge can continue the session, the connection waits. */
  #lost(info: CloseInfo): void {
    this.#transport = undefined;
    this.#settle();
    const connection = this.#connection!;
    if (info.code === CloseCode.over) connection.receive(this.#clock.now(), connectionClose()); // the edge's own may have got lost
    if (connection.phase === "closed") return;
    this.#closing = info;
    const ours = this.#clock.now() < this.#abandonedAt + lateness; // the newer transport is one that this client gave up
    const waits = this.#resume !== undefined && this.open && info.code !== CloseCode.unknown && (info.code !== CloseCode.replaced || ours);
    if (waits) return void this.#retry(info);
    connection.end(info.code === CloseCode.replaced ? "replaced" : info.code === CloseCode.full ? "rejected" : "lost");
  }

  /** settle notes that a transport is over. After a good one, the pauses begin anew. */
  #settle(): void {
    if (this.#clock.now() - this.#attachedAt >= steadyAfter) this.#attempts = 0;
    this.#attachedAt = Infinity;
  }

  /** ended notes that the connection ended, and with it the session. */
  #ended(reason: CloseReason): void {
    this.#transport?.close();
    this.#transport = undefined;
    this.#resume = undefined;
    this.#settle();
    const info = this.#closing;
    this.#closing = undefined;
    this.#failed(reason, info && told(info), info, this.#connection!.unacknowledged);
  }

  /** failed tells the application that there is no connection, and makes another one. */
  #failed(reason: CloseReason, detail: string | undefined, info: CloseInfo | undefined, unacknowledged = 0): void {
    let retryIn: number | undefined;
    if (!this.#mayRetry(reason)) this.#closed = true;
    else retryIn = this.#dialing ? 0 : this.#retry(info); // another session begins already
    this.emit("close", { reason, detail, retryIn, unacknowledged });
  }

  #mayRetry(reason: CloseReason): boolean {
    const refused = reason === "refused" && this.options.token !== undefined && typeof this.options.token !== "function";
    return !this.#closed && this.options.reconnect !== false && !finalReasons.includes(reason) && !refused;
  }

  /** retry dials again after a pause, which it returns. */
  #retry(info: CloseInfo | undefined): number {
    const n = this.#attempts++;
    const pause = info ? pauseAfter(n, info, Math.random()) : backoff(n, Math.random());
    this.#cancelRetry();
    this.#cancelRetry = this.#clock.after(pause, () => void this.#dial());
    return pause;
  }

  /** wake drives the connection soon, because the application gave it something to do. */
  #wake(): void {
    if (this.#woken) return;
    this.#woken = true;
    queueMicrotask(this.#onWake);
  }

  readonly #onWake = (): void => {
    this.#woken = false;
    this.#drive();
  };

  readonly #onTimer = (): void => {
    this.#timerAt = Infinity;
    this.#drive();
  };

  /** drive does what is due, and sets the timer. A timer that fires too early does no harm. */
  #drive(): void {
    const connection = this.#connection;
    if (!connection || this.#closed) return;
    const now = this.#clock.now();
    connection.advance(now);
    if (this.#resume !== undefined && this.#transport && connection.unanswered(now)) {
      this.#transport.close();
      this.#lost({ code: lost, reason: "the edge does not answer" });
    }
    const at = Math.max(now, connection.nextTimeout());
    if (at >= this.#timerAt) return;
    this.#cancelTimer();
    this.#timerAt = at;
    this.#cancelTimer = this.#clock.after(Math.ceil(at - now), this.#onTimer);
  }
}

const encoder = new TextEncoder();

const bytesOf = (data: Uint8Array | string): Uint8Array => (typeof data === "string" ? encoder.encode(data) : data);
