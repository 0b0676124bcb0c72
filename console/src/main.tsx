import { render } from "preact";
import { useEffect, useReducer, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { ask, useAsked, type Client, type List, type Node, type Space } from "./api.js";
import { Clients } from "./clients.js";
import { Cluster } from "./cluster.js";
import { Detail } from "./detail.js";
import { Events } from "./events.js";
import * as format from "./format.js";
import { Live } from "./live.js";
import { States } from "./states.js";
import { Watch } from "./watch.js";
import { World } from "./world.js";

const tabs = ["world", "states", "clients", "cluster", "events"] as const;
type Tab = (typeof tabs)[number];
const titles: { [tab in Tab]: string } = { world: "World", states: "States", clients: "Clients", cluster: "Cluster", events: "Events" };
/** Tables and panels are drawn anew so often in ms; the world in every frame. */
const drawEvery = 250;
/** How often the nodes are asked, and the clients of the space, in ms, to find out what happens to them. */
const nodesEvery = 1_500;
const clientsEvery = 3_000;
/** Of so many clients the page notices that their sessions moved. */
const watched = 200;

interface About {
  space: string;
  edit: boolean;
}

/** route reads what the address shows: #/space/tab. */
function route(): { space: string; tab: Tab } {
  const [, space = "", tab = ""] = location.hash.split("/");
  return { space: decodeURIComponent(space), tab: (tabs as readonly string[]).includes(tab) ? (tab as Tab) : "world" };
}

function go(space: string, tab: Tab): void {
  location.hash = `#/${encodeURIComponent(space)}/${tab}`;
}

function useTheme(): () => void {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "");
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return () => setTheme(dark ? "light" : "dark");
}

function App({ about }: { about: About }) {
  const [at, setAt] = useState(route());
  const [live, setLive] = useState<Live | undefined>(undefined);
  const [selected, select] = useState(0);
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const spaces = useAsked<List<Space>>("api/spaces?max=500", 3_000);
  const nodes = useAsked<List<Node>>("api/nodes", nodesEvery);
  const turn = useTheme();
  const space = at.space || about.space || spaces.value?.entries?.[0]?.space || "";

  const clients = useAsked<List<Client>>(space && `api/clients?space=${encodeURIComponent(space)}&max=${watched}`, clientsEvery);
  const [watch] = useState(() => new Watch());
  useEffect(() => void (nodes.value && watch.nodes(nodes.value.entries ?? [], Date.now())), [nodes.value]);
  useEffect(() => void (spaces.value && watch.spaces(spaces.value.entries ?? [], Date.now())), [spaces.value]);
  useEffect(() => void (clients.value && watch.clients(space, clients.value.entries ?? [], Date.now())), [clients.value]);

  useEffect(() => {
    const changed = () => setAt(route());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  useEffect(() => {
    if (!space) return;
    select(0);
    const l = new Live(space, () => {});
    setLive(l);
    const timer = setInterval(() => !document.hidden && draw(0), drawEvery);
    return () => {
      clearInterval(timer);
      l.close();
    };
  }, [space]);
  useEffect(() => {
    const key = (e: KeyboardEvent) => {
      if (e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement || e.ctrlKey || e.metaKey || e.altKey) {
        if (e.key === "Escape") (e.target as HTMLElement).blur();
        return;
      }
      const tab = tabs[Number(e.key) - 1];
      if (tab) go(space, tab);
      else if (e.key === "Escape") select(0);
      else if (e.key === "/") {
        const filter = document.getElementById("filter");
        if (!filter) go(space, "states");
        setTimeout(() => document.getElementById("filter")?.focus());
        e.preventDefault();
      } else if (e.key === "t") turn();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  });

  const shown = live?.space === space ? live : undefined;
  const row = shown?.model.rows.get(selected);
  const asks = row?.about.interest && (at.tab === "world" || at.tab === "states");
  const near = useAsked<List<Client>>(asks ? `api/clients?space=${encodeURIComponent(space)}&near=${encodeURIComponent(row.key)}&max=500` : "", 1_000);
  const names = [...new Set([space, ...(spaces.value?.entries ?? []).map((s) => s.space)])].filter(Boolean);
  return (
    <>
      <header class="bar">
        <h1>dnprelay</h1>
        <select aria-label="Space" value={space} onChange={(e) => go(e.currentTarget.value, at.tab)}>
          {names.map((n) => <option value={n}>{n}</option>)}
        </select>
        <nav>
          {tabs.map((t, i) => (
            <a href={`#/${encodeURIComponent(space)}/${t}`} class={t === at.tab ? "on" : ""} aria-current={t === at.tab ? "page" : undefined} title={`${titles[t]} (${i + 1})`}>{titles[t]}</a>
          ))}
        </nav>
        <Condition live={shown} />
        <button class="theme" onClick={turn} title="Dark or light (t)" aria-label="Dark or light">◐</button>
      </header>
      <main class={row && (at.tab === "world" || at.tab === "states") ? "split" : ""}>
        {!space && <p class="empty">No relay holds a space yet. Publish something, and it appears here.</p>}
        {shown && at.tab === "world" && <World key={space} live={shown} selected={selected} select={select} edit={about.edit} near={near} />}
        {shown && at.tab === "states" && <States live={shown} selected={selected} select={select} />}
        {shown && at.tab === "clients" && <Clients live={shown} edit={about.edit} />}
        {shown && at.tab === "cluster" && <Cluster live={shown} watch={watch} nodes={nodes} edit={about.edit} />}
        {shown && at.tab === "events" && <Events live={shown} watch={watch} />}
        {shown && row && (at.tab === "world" || at.tab === "states") && <Detail key={row.n} live={shown} row={row} near={near} edit={about.edit} close={() => select(0)} />}
      </main>
    </>
  );
}

function Condition({ live }: { live: Live | undefined }) {
  if (!live || (!live.connected && !live.problem)) return <p class="condition" role="status">connecting…</p>;
  if (!live.connected) return <p class="condition warn" role="status" title={live.problem}>disconnected: {format.plain(live.problem, 100)}</p>;
  const { model } = live;
  if (!model.complete) return <p class="condition warn" role="status">{format.plain(model.waiting || "waiting", 100)}</p>;
  return <p class="condition" role="status"><i class="dot" /> {model.rows.size} states <span class="faint">at {model.epoch}:{model.seq}</span></p>;
}

const root = document.getElementById("app")!;
try {
  const about = await ask<About>("api/about");
  root.textContent = "";
  render(<App about={about} />, root);
} catch (error) {
  root.textContent = `The page cannot begin: ${(error as Error).message}`;
}
