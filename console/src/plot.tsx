import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock } from "./format.js";

const pointsMax = 600; // one a second: ten minutes

export interface History<K extends string> {
  times: number[]; // seconds since 1970
  values: { [name in K]: number[] };
}

/** useHistory keeps what was given to it, once a second at most, for ten minutes. It begins anew with another id; what is not known yet it leaves out. */
export function useHistory<K extends string>(id: string, now: { [name in K]: number } | undefined): History<K> {
  const kept = useRef<{ id: string; history: History<K> }>({ id: "", history: { times: [], values: {} as History<K>["values"] } });
  if (kept.current.id !== id) kept.current = { id, history: { times: [], values: {} as History<K>["values"] } };
  const { history } = kept.current;
  const time = Date.now() / 1_000;
  if (now && time - (history.times.at(-1) ?? 0) >= 0.9) {
    history.times = [...history.times, time].slice(-pointsMax);
    for (const name of Object.keys(now) as K[]) history.values[name] = [...(history.values[name] ?? []), now[name]].slice(-pointsMax);
  }
  return history;
}

const colours = ["#3b82f6", "#f59e0b", "#10b981", "#ef4444"];

/** A Plot draws lines over time. */
export function Plot({ title, times, lines }: { title: string; times: number[]; lines: { label: string; values: number[] | undefined }[] }) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const labels = lines.map((l) => l.label).join();
  useEffect(() => {
    const root = element.current!;
    const text = getComputedStyle(root).color;
    const axis = { stroke: text, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884" }, font: "11px system-ui" };
    const p = new uPlot(
      {
        title, width: root.clientWidth || 300, height: 150, legend: { show: lines.length > 1, live: false },
        scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
        series: [{}, ...lines.map((l, i) => ({ label: l.label, stroke: colours[i % colours.length]!, width: 1.5, points: { show: false } }))],
        axes: [{ ...axis, space: 70, incrs: [1, 2, 5, 10, 20, 30, 60, 120, 300], values: (_, at) => at.map((t) => clock(new Date(t * 1_000))) }, { ...axis, size: 56 }],
      },
      [times, ...lines.map((l) => l.values ?? [])],
      root,
    );
    plot.current = p;
    const watch = new ResizeObserver(() => p.setSize({ width: root.clientWidth, height: 150 }));
    watch.observe(root);
    return () => {
      watch.disconnect();
      p.destroy();
    };
  }, [title, labels]);
  useEffect(() => plot.current?.setData([times, ...lines.map((l) => l.values ?? [])]));
  return <div class="plot" ref={element} />;
}
