import { Budget } from "./budget.js";
import { capWrites, Commands, hello } from "./command.js";
import { LinkTable } from "./links.js";
import { isReliable, RecvWindow } from "./recvwindow.js";
import { SendWindow, wholeMax } from "./sendwindow.js";
import type { Description, State } from "./state.js";
import {
  Accepted, AckSuccess, Command, connectionClose, connectionRequest, message, NoCommonProtocol, parseConnectionAck, parseLinkState,
  reliableAck, reliableMessage, u16,
} from "./wire.js";

/** Times in ms. A request is repeated sooner than libraries do, because its answer may get lost twice. */
const requestSteps = [0, 500, 1000, 1500, 2000, 3000, 4000];
const connectTimeout = 5_000;

/** After so long without any datagram, or without an acknowledgement, the edge is asked whether it is there. */
const silenceMax = 5_000;
const unansweredMax = 15_000;

/** An edge that has acknowledged the hello answers it sooner. Another server does not. */
const answerMax = 3_000;

/** An edge that says nothing for so long although it was asked is not there, or the path to it is not. */
const deafnessMax = 4_000;

/**
 * An edge repeats its commands seldom, and singly, to a client that it has not heard for half a second. So while
 * commands of the edge get lost, and for a while after, the client sends a probe now and then.
 */
const troubleLasts = 2_000;
const troubleProbes = 250;

/** An owner that is so late stood still. */
const stallMin = 2_000;

/** Unreliable messages that wait for the next `advance`; further ones are dropped. */
const laneMessages = 64;
const laneBytes = 128 << 10;

/** What the libraries can send in one datagram. */
const unreliableMax = 65_499;

/**
 * Why a connection ended. "refused": the edge closed it and has not acknowledged the login. "lost": the
 * transport ended. "replaced": another client continues the session.
 */
export type CloseReason = "local" | "peer" | "timeout" | "rejected" | "refused" | "protocol" | "too-large" | "lost" | "replaced";

/**
 * Output takes what a connection says. It must not throw. It may call the connection, which acts on that in
 * its next `advance`.
 */
export interface Output {
  /** send takes a datagram, which is its own from then on. */
  send(datagram: Uint8Array): void;
  /** ready says that the application set a value, so `advance` is due. */
  ready(): void;
  connected(): void;
  /** closed is the last call. */
  closed(reason: CloseReason): void;
  /** message takes a message, which is valid during the call. */
  message(data: Uint8Array, reliable: boolean): void;
  linked(state: State): void;
  changed(state: State, index: number): void;
  unlinked(state: State): void;
}

export interface ConnectionConfig {
  /** The first reliable message, with which the client logs in. It has at most 1,357 bytes. */
  readonly login?: Uint8Array | undefined;
  /** Up to this size commands are packed together, and messages are split. Default 1,200 bytes. */
  readonly datagramMax?: number | undefined;
  /** The shortest time between two LinkUpdates with new values, in ms. Default 30. */
  readonly updateInterval?: number | undefined;
  /** Whether the server is no edge of dnprelay: then no hello asks it for more than DNP. */
  readonly plain?: boolean | undefined;
  /** Whether the transport loses nothing while it lasts, as a WebSocket. */
  readonly ordered?: boolean | undefined;
  /** Reads the link messages of states. It must not throw. */
  readonly describe?: ((message: Uint8Array) => Description) | undefined;
}

/** Stats counts what a connection did. */
export class Stats {
  received = 0;
  sent = 0;
  repeated = 0; // reliable commands of the edge that came again
  outside = 0; // reliable commands with numbers outside of the window
  malformed = 0; // datagrams that were dropped, or the rest of LinkUpdates
  ignored = 0; // commands that mean nothing now
  dropped = 0; // own unreliable messages beyond the bounds
}

type Phase = "connecting" | "established" | "closed";

/**
 * A Connection is the client's side of DNP without input, output and clock. Its owner gives it each
 * datagram (`receive`) and calls `advance` after every other call and when `nextTimeout` says so, with
 * the time in ms; the connection calls its Output. Nothing in it calls back later.
 */
export class Connection {
  readonly stats = new Stats();

  #phase: Phase = "connecting";
  #now = 0;

  #requests = 0;
  #requested = -Infinity; // the first request
  #sure = 0; // the latest acknowledgement
  #probed = -Infinity; // the latest probe
  #troubled = -Infinity; // when a command of the edge came early or again
  readonly #loggingIn: boolean; // with the first command
  #helloNumber = -1;
  #answerBy = Infinity; // when the hello counts as not answered

  readonly #recv = new RecvWindow();
  readonly #window: SendWindow;
  readonly #links: LinkTable;
  readonly #commands: Commands;
  readonly #budget = new Budget();
  #lane: Uint8Array[] = [];
  #laneBytes = 0;

  constructor(config: ConnectionConfig, private readonly out: Output) {
    const datagramMax = config.datagramMax ?? 1_200;
    this.#window = new SendWindow(datagramMax);
    const events = {
      send: (datagram: Uint8Array) => this.#emit(datagram),
      answer: (datagram: Uint8Array) => this.#answer(datagram),
      ready: () => out.ready(),
      granted: () => this.#granted(capWrites),
      linked: (state: State) => out.linked(state),
      changed: (state: State, index: number) => out.changed(state, index),
      unlinked: (state: State) => out.unlinked(state),
      command: (link: () => number | undefined, name: string, body: Uint8Array, signal?: AbortSignal) =>
        this.#commands.command(link, name, body, signal, () => this.#now),
    };
    this.#commands = new Commands((data) => this.#window.send(data), () => out.ready(), !config.plain);
    this.#links = new LinkTable(events, datagramMax, config.updateInterval ?? 30);
    if (config.describe) this.#links.describe = config.describe;
    const { login } = config;
    this.#loggingIn = login !== undefined;
    if (login && login.length > wholeMax) throw new RangeError(`the login has ${login.length} bytes, at most ${wholeMax}`);
    if (login) this.#window.add((number) => reliableMessage(number, login)); // before all offers
    this.#links.writes.ordered = config.ordered ?? false;
    if (config.plain) this.#links.plain();
    else this.#window.add((number) => reliableMessage((this.#helloNumber = number), hello));
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** The mean time from a reliable command to its acknowledgement in ms; 0 before the first. */
  get roundTrip(): number {
    return this.#window.trip.mean;
  }

  /** Commands that were sent again. */
  get repeats(): number {
    return this.#window.repeats;
  }

  /** Whether the edge has acknowledged everything. */
  get idle(): boolean {
    return this.#window.idle;
  }

  /** Reliable messages that the edge has not acknowledged, also after the end. */
  get unacknowledged(): number {
    return this.#window.unacknowledged;
  }

  /** send queues a reliable message of 1 byte to 1 MiB. It throws if too much waits. */
  send(data: Uint8Array): void {
    if (this.#phase === "closed") throw new Error("send: the connection is closed");
    this.#window.send(this.#commands.outgoing(data));
  }

  /** sendUnreliable queues a message that is sent once. It reports false if it drops the message. */
  sendUnreliable(data: Uint8Array): boolean {
    if (data.length === 0 || data.length > unreliableMax) {
      throw new RangeError(`send: the message has ${data.length} bytes, want 1 to ${unreliableMax}`);
    }
    const full = this.#lane.length >= laneMessages || this.#laneBytes + data.length > laneBytes;
    if (this.#phase !== "established" || full) {
      this.stats.dropped++;
      return false;
    }
    this.#lane.push(message(data));
    this.#laneBytes += data.length;
    return true;
  }

  /** offer offers an own state to the edge. */
  offer(state: State): void {
    this.#window.add(this.#links.offer(state));
  }

  /** withdraw ends the link of an own state. */
  withdraw(state: State): void {
    this.#links.withdraw(state);
  }

  /** close ends the connection and tells the edge once. */
  close(): void {
    if (this.#phase !== "closed") this.#emit(connectionClose());
    this.end("local");
  }

  /** end ends the connection without telling the edge. */
  end(reason: CloseReason): void {
    if (this.#phase === "closed") return;
    this.#phase = "closed";
    this.#links.clear();
    this.#commands.end();
    this.out.closed(reason);
  }

  /** receive handles a datagram, which it does not keep. */
  receive(now: number, p: Uint8Array): void {
    this.#begin(now);
    this.stats.received++;
    if (this.#phase === "connecting") this.#receiveConnecting(p);
    else if (this.#phase === "established") this.#receiveEstablished(p);
  }

  /** advance sends what is ready and does what is due. */
  advance(now: number): void {
    this.#begin(now);
    if (this.#phase === "connecting") this.#request();
    if (this.#phase !== "established") return;
    if (now >= this.#answerBy) this.#unanswered();
    this.#commands.advance(now);
    if (!this.#window.resend(now, (datagram) => this.#emit(datagram))) {
      this.#emit(connectionClose());
      this.end("timeout");
      return;
    }
    if (now >= this.#askAt()) {
      this.#probed = now;
      this.#window.probe();
    }
    for (let p; this.#budget.allows(now) && (p = this.#window.next(now)); ) this.#emit(p);
    if (this.#budget.allows(now)) this.#links.flush(now, this.#window.heard);
    this.#sendLane();
  }

  /** nextTimeout returns when to call advance; -Infinity means at once, Infinity never. */
  nextTimeout(): number {
    if (this.#phase === "closed") return Infinity;
    if (this.#phase === "connecting") {
      return this.#requested + (requestSteps[this.#requests] ?? connectTimeout);
    }
    if (this.#lane.length > 0) return -Infinity;
    let at = Math.min(this.#window.nextTimeout(this.#now), this.#askAt(), this.#answerBy);
    const send = this.#window.ready ? -Infinity : this.#links.nextTimeout();
    if (send < Infinity) at = Math.min(at, Math.max(send, this.#budget.allowedAt(this.#now)));
    return at;
  }

  /**
   * resume goes on after the transport was replaced by another one to the same session. What may have got
   * lost with the old one goes again at once, and in any case a datagram, by which the edge learns that the client
   * is there.
   */
  resume(now: number, ordered = false): void {
    this.#links.resume(this.#window.heard, ordered);
    this.#window.resume(now);
    this.#sure = now;
    if (this.#window.idle) this.#window.probe();
    this.#begin(now);
  }

  /** unanswered reports whether the edge owes an answer for so long that another transport may do better. */
  unanswered(now: number): boolean {
    return this.#phase === "established" && this.#window.answered && now >= Math.max(this.#window.heard, this.#window.waitsSince) + deafnessMax;
  }

  /**
   * begin notes the time. An owner that did not call when something was due stood still, and could not hear
   * the edge: a page in the background, a laptop asleep. That is no reason to give the edge up.
   */
  #begin(now: number): void {
    if (now - this.#now > stallMin && this.#phase === "established" && this.nextTimeout() < now - stallMin) {
      this.#window.forgive(now);
      if (this.#answerBy < Infinity) this.#answerBy = now + answerMax;
    }
    this.#now = now;
  }

  #helloAcknowledged(): void {
    this.#helloNumber = -1; // the number comes again
    if (this.#links.writes.mode === "waiting") this.#answerBy = this.#now + answerMax;
  }

  /** unanswered notes that the server has the hello and does not answer it: it is no edge. */
  #unanswered(): void {
    this.#answerBy = Infinity;
    this.#commands.unanswered();
    this.#links.writes.mode = "plain";
  }

  /** granted notes what the edge says to the hello, or shows by what it sends. */
  #granted(granted: number): void {
    this.#answerBy = Infinity;
    this.#commands.answered();
    if ((granted & capWrites) !== 0) this.#links.granted();
    else this.#links.plain();
  }

  #emit(datagram: Uint8Array): void {
    this.stats.sent++;
    this.#budget.pay(datagram.length);
    this.out.send(datagram);
  }

  /** answer sends what edges do not count. */
  #answer(datagram: Uint8Array): void {
    this.stats.sent++;
    this.out.send(datagram);
  }

  #request(): void {
    if (this.#requested === -Infinity) this.#requested = this.#now;
    const since = this.#now - this.#requested;
    if (since >= connectTimeout) {
      this.end("timeout");
      return;
    }
    if (since < (requestSteps[this.#requests] ?? Infinity)) return;
    while (since >= (requestSteps[this.#requests] ?? Infinity)) this.#requests++;
    this.#emit(connectionRequest());
  }

  /** A client that connects ignores everything but the answer. */
  #receiveConnecting(p: Uint8Array): void {
    const ack = p[0] === Command.connectionAck ? parseConnectionAck(p) : undefined;
    if (!ack) {
      this.stats.ignored++;
      return;
    }
    if (ack.result === Accepted && ack.protocol === 0) {
      this.#phase = "established";
      this.#window.heard = this.#sure = this.#now;
      if (this.#requests === 1) this.#window.trip.sample(this.#now - this.#requested);
      this.out.connected();
      return;
    }
    this.end(ack.result === Accepted || ack.result === NoCommonProtocol ? "protocol" : "rejected");
  }

  #receiveEstablished(p: Uint8Array): void {
    this.#window.heard = this.#now;
    switch (p[0]) {
      case Command.connectionClose: return this.end(this.#loggingIn && !this.#window.answered ? "refused" : "peer");
      case Command.message: return this.#receiveMessage(p);
      case Command.reliableMessage:
      case Command.linkState:
      case Command.reliableMessageLong: return this.#receiveReliable(p);
      case Command.reliableAck: return this.#receiveAck(p);
      case Command.linkUp: return this.#receiveLink(p, () => this.#links.receiveUp(u16(p, 1)));
      case Command.linkDown: return this.#receiveLink(p, () => this.#links.receiveDown(u16(p, 1)));
      case Command.linkUpdate:
        if (!this.#links.receiveUpdate(p, this.#now)) this.stats.malformed++;
        return;
      default: this.stats.ignored++; // late answers to requests, and commands that do not exist
    }
  }

  #receiveMessage(p: Uint8Array): void {
    if (p.length === 1) this.stats.malformed++;
    else this.out.message(p.subarray(1), false);
  }

  #receiveLink(p: Uint8Array, handle: () => void): void {
    if (p.length < 3) this.stats.malformed++;
    else handle();
  }

  #receiveAck(p: Uint8Array): void {
    if (p.length < 4) {
      this.stats.malformed++;
    } else if (p[3] !== AckSuccess) {
      this.#window.again(u16(p, 1));
    } else if (this.#window.acknowledge(u16(p, 1), this.#now)) {
      this.#sure = this.#now;
      if (u16(p, 1) === this.#helloNumber) this.#helloAcknowledged();
    } else {
      this.stats.ignored++;
    }
  }

  /** A command that does not parse is not acknowledged: the next copy may be better. */
  #receiveReliable(p: Uint8Array): void {
    if (!isReliable(p) || (p[0] === Command.linkState && !parseLinkState(p))) {
      this.stats.malformed++;
      return;
    }
    const number = u16(p, 1);
    const arrival = this.#recv.judge(number, p.length);
    if (arrival === "outside") {
      this.stats.outside++;
      return;
    }
    this.#answer(reliableAck(number));
    if (arrival !== "due") this.#troubled = this.#now;
    if (arrival === "repeat") this.stats.repeated++;
    else if (arrival === "early") this.#recv.hold(number, p);
    else for (let next: Uint8Array | undefined = p; next && this.#phase === "established"; next = this.#recv.advance()) this.#deliver(next);
  }

  /** deliver passes on the command that is due. */
  #deliver(p: Uint8Array): void {
    if (p[0] === Command.reliableMessage) {
      this.#message(p.subarray(3));
    } else if (p[0] === Command.linkState) {
      this.#links.receiveOffer(p, this.#now);
    } else {
      const whole = this.#recv.join(p);
      if (whole) {
        this.#message(whole);
      } else if (whole === null) {
        this.#emit(connectionClose());
        this.end("too-large");
      }
    }
  }

  #message(data: Uint8Array): void {
    const before = this.#commands.granted;
    const message = this.#commands.incoming(data);
    if (before === undefined && this.#commands.granted !== undefined) this.#granted(this.#commands.granted);
    if (message) this.out.message(message, true);
  }

  /** askAt returns when to ask whether the edge is there. What is in flight asks already. */
  #askAt(): number {
    if (!this.#window.idle) return Infinity;
    const probe = Math.max(this.#troubled, this.#probed + troubleProbes);
    const trouble = probe < this.#troubled + troubleLasts ? probe : Infinity;
    return Math.min(trouble, this.#window.heard + silenceMax, this.#sure + unansweredMax);
  }

  #sendLane(): void {
    for (const p of this.#lane) {
      if (this.#budget.allows(this.#now)) this.#emit(p);
      else this.stats.dropped++;
    }
    this.#lane = [];
    this.#laneBytes = 0;
  }
}
