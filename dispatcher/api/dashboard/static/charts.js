// Line charts of the last ten minutes, drawn by Plotly; samples are stored by column.

import { colour } from "./page.js";
import { plain } from "./text.js";

const KEPT = 600;
const columns = { time: [], published: [], forwarded: [], useful: [], matched: [], notified: [], hit_ratio: [], cpu: [], precision: [] };
let decisions = [];

export function begin(history) {
  for (const name of Object.keys(columns)) columns[name] = history.columns[name];
  decisions = history.decisions;
}

export function add(sample) {
  const row = { time: sample.time, hit_ratio: sample.hit_ratio, cpu: sample.cpu, precision: sample.precision, ...sample.rates };
  for (const [name, values] of Object.entries(columns)) {
    values.push(row[name]);
    if (values.length > KEPT) values.shift();
  }
  decisions.push(...sample.decisions);
}

export const decided = () => decisions;

const wasted = () => columns.forwarded.map((all, place) => (all > 0 ? Math.max(0, 1 - columns.useful[place] / all) : null));
const times = () => columns.time.map((at) => new Date(at));

export function layout(more = {}) {
  const axis = { gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true };
  return {
    margin: { l: 48, r: 12, t: innerWidth < 760 ? 44 : 26, b: 28 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("soft"), size: 11, family: "system-ui, sans-serif" },
    showlegend: true,
    legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0, font: { size: 11 } },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("text") } },
    ...more,
    xaxis: { ...axis, ...more.xaxis },
    yaxis: { ...axis, ...more.yaxis },
  };
}

// Times without a date, not rotated, so that the lines keep their height.
const clocks = () => ({ tickformat: "%H:%M:%S", tickangle: 0, nticks: innerWidth < 760 ? 5 : 8 });

export const CONFIG = { displayModeBar: false, responsive: true, typesetMath: false };

const line = (name, y, tint, more = {}) => ({ type: "scatter", mode: "lines", name: plain(name), x: times(), y, line: { color: tint, width: 1.8 }, ...more });

export function draw() {
  if (!window.Plotly) return;
  window.Plotly.react("chart-traffic", ["published", "forwarded", "matched", "notified"].map((name) => line(name === "notified" ? "delivered" : name, columns[name], colour(name))), layout({ xaxis: clocks(), yaxis: { rangemode: "tozero" } }), CONFIG);
  window.Plotly.react("chart-ratios", [
    line("hit ratio", columns.hit_ratio, colour("published")),
    line("false positives", wasted(), colour("bad")),
  ], layout({ xaxis: clocks(), yaxis: { rangemode: "tozero", tickformat: ".0%" } }), CONFIG);
  const first = columns.time[0] ?? 0;
  const shown = decisions.filter((one) => one.time / 1000 >= first);
  window.Plotly.react("chart-tuning", [
    line("CPU", columns.cpu, colour("forwarded")),
    line("precision", columns.precision, colour("published"), { line: { color: colour("published"), width: 2, shape: "hv" } }),
    {
      type: "scatter", mode: "markers", name: "decision", x: shown.map((one) => new Date(one.time / 1000)), y: shown.map((one) => one.precision),
      text: shown.map((one) => plain(one.reason)), hovertemplate: "%{y:.0%}: %{text}<extra></extra>",
      marker: { symbol: "diamond", size: 9, color: colour("accent"), line: { color: colour("panel"), width: 1 } },
    },
  ], layout({ xaxis: clocks(), yaxis: { range: [0, 1.05], tickformat: ".0%" } }), CONFIG);
}
