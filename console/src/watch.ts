// What happens to nodes, spaces and sessions, found by comparing what nodes answer with what they answered before.
import type { Client, Node, Space } from "./api.js";
import { count, span } from "./format.js";
import type { GameEvent } from "./model.js";

/** A node that is busy may miss a question, so it is gone when it is in none of so many answers. */
const absencesMax = 2;
/** For so long in ms a node that is gone is listed. */
const goneFor = 5 * 60_000;
const eventsMax = 500;

interface Known {
  node: Node;
  absences: number; // answers without it
  goneAt: number; // 0 while it is there
}

/** less lists what a has and b does not. */
const less = (a: string[] = [], b: string[] = []) => a.filter((x) => !b.includes(x)).join(", ");

/** A Watch finds out what happens from one answer to the next. */
export class Watch {
  events: GameEvent[] = [];
  #nodes = new Map<string, Known>();
  #spaces = new Map<string, string>(); // their holders
  #clients = new Map<string, string>(); // the edges of sessions
  #asked = { nodes: false, spaces: false, clients: "" };

  /** nodes takes an answer about nodes. */
  nodes(list: Node[], now: number): void {
    const there = new Set<string>();
    for (const node of list) {
      const id = `${node.role} ${node.node}`;
      there.add(id);
      const known = this.#nodes.get(id);
      this.#nodes.set(id, { node, absences: 0, goneAt: 0 });
      if (!known) {
        if (this.#asked.nodes) this.#tell(now, `${node.role} came`, { node: node.node });
        continue;
      }
      const before = known.node;
      if (known.goneAt) this.#tell(now, `${node.role} is back`, { node: node.node, after: span(now - known.goneAt) });
      else if (node.silent && !before.silent) this.#tell(now, `${node.role} silent`, { node: node.node });
      else if (!node.silent && before.silent) this.#tell(now, `${node.role} answers again`, { node: node.node });
      else if ((node.uptime_ms ?? 0) < (before.uptime_ms ?? 0)) this.#tell(now, `${node.role} restarted`, { node: node.node });
      const [lost, found] = node.silent || before.silent ? [] : [less(node.missing, before.missing), less(before.missing, node.missing)];
      if (lost) this.#tell(now, `${node.role} lost`, { node: node.node, what: lost });
      if (found) this.#tell(now, `${node.role} has again`, { node: node.node, what: found });
      if (node.draining && !before.draining) this.#tell(now, `${node.role} drains`, { node: node.node, clients: node.clients });
    }
    for (const [id, known] of this.#nodes) {
      if (there.has(id)) continue;
      if (!known.goneAt && ++known.absences >= absencesMax) {
        known.goneAt = now;
        this.#tell(now, `${known.node.role} gone`, { node: known.node.node, clients: known.node.clients });
      }
      if (known.goneAt && now - known.goneAt > goneFor) this.#nodes.delete(id);
    }
    this.#asked.nodes = true;
  }

  /** all returns the nodes, with those that are gone since a while. */
  all(now: number): Node[] {
    return [...this.#nodes.values()].map(({ node, goneAt }) => (goneAt ? { node: node.node, role: node.role, gone_ms: now - goneAt } : node));
  }

  /** spaces takes an answer about spaces. */
  spaces(list: Space[], now: number): void {
    for (const { space, holder } of list) {
      const before = this.#spaces.get(space);
      if (this.#asked.spaces && before !== undefined && before !== holder) this.#tell(now, "space moved", { space, from: before, to: holder });
      this.#spaces.set(space, holder);
    }
    this.#asked.spaces = true;
  }

  /** clients takes an answer about the clients of a space. */
  clients(space: string, list: Client[], now: number): void {
    if (this.#asked.clients !== space) this.#clients.clear();
    this.#asked.clients = space;
    const moved = new Map<string, { from: string; to: string; clients: string[] }>();
    for (const { session, edge, client } of list) {
      const from = this.#clients.get(session);
      this.#clients.set(session, edge);
      if (from === undefined || from === edge) continue;
      const move = moved.get(`${from} ${edge}`) ?? { from, to: edge, clients: [] };
      move.clients.push(client);
      moved.set(`${from} ${edge}`, move);
    }
    for (const { from, to, clients } of moved.values()) this.#tell(now, `${count(clients.length, "session")} moved`, { space, from, to, clients: clients.slice(0, 5) });
    if (this.#clients.size > 4 * list.length + 1_000) this.#clients = new Map(list.map((c) => [c.session, c.edge])); // of sessions that ended
  }

  #tell(now: number, type: string, more: { [field: string]: unknown }): void {
    const known = Object.fromEntries(Object.entries(more).filter(([, v]) => v !== undefined));
    this.events = [...this.events, { type, ts: new Date(now).toISOString(), ...known }].slice(-eventsMax);
  }
}
