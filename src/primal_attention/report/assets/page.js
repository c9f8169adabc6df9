"use strict";
// Light or dark, views, legends, and what stands under the pointer. The numbers of a line chart come
// from the CSV of its own download link; everything is set as text, never as HTML.

const root = document.documentElement;
const tip = document.getElementById("tip");
const SVG = "http://www.w3.org/2000/svg";

// -- light or dark ------------------------------------------------------------------------------

const memory = {
  read() { try { return localStorage.getItem("primal-theme"); } catch { return null; } },
  write(value) { try { localStorage.setItem("primal-theme", value); } catch { /* from disk */ } },
};
const isDark = () => root.dataset.theme
  ? root.dataset.theme === "dark"
  : matchMedia("(prefers-color-scheme: dark)").matches;
if (memory.read()) root.dataset.theme = memory.read();
document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  memory.write(root.dataset.theme);
});

// -- views and legends --------------------------------------------------------------------------

for (const button of document.querySelectorAll("[data-show]")) {
  button.addEventListener("click", () => {
    const figure = button.closest("figure");
    for (const view of figure.querySelectorAll("[data-view]")) {
      view.hidden = view.dataset.view !== button.dataset.show;
    }
    for (const other of figure.querySelectorAll("[data-show]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
  });
}

for (const button of document.querySelectorAll("[data-toggle]")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(shown));
    for (const mark of button.closest(".panel").querySelectorAll("[data-key]")) {
      if (mark.dataset.key === button.dataset.toggle) mark.classList.toggle("off", !shown);
    }
  });
}

// -- the table of a figure ----------------------------------------------------------------------

function parseCsv(text) {
  const rows = [[]];
  let cell = "", quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text[i + 1] === '"') { cell += c; i++; }
      else quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === "," || c === "\n") {
      rows[rows.length - 1].push(cell);
      cell = "";
      if (c === "\n") rows.push([]);
    } else cell += c;
  }
  return rows.slice(0, -1);
}

function readTable(figure) {
  const address = figure.querySelector("a.csv").href;
  return parseCsv(decodeURIComponent(address.slice(address.indexOf(",") + 1)));
}

function readScales(svg) {
  const words = svg.dataset.scale.split(" ");
  const scale = ([kind, ...numbers]) => {
    const [low, high, start, end] = numbers.map(Number);
    const inner = kind === "log" ? (v) => Math.log10(Math.max(v, low)) : (v) => v;
    const share = (v) => (inner(v) - inner(low)) / (inner(high) - inner(low));
    return { start, end, at: (v) => start + share(v) * (end - start) };
  };
  return [scale(words.slice(0, 5)), scale(words.slice(5))];
}

// -- the pointer --------------------------------------------------------------------------------

function say(text, event) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - box.width - 6);
  const below = event.clientY + 14;
  const y = below + box.height > innerHeight ? event.clientY - box.height - 10 : below;
  tip.style.left = `${Math.max(x, 4)}px`;
  tip.style.top = `${Math.max(y, 4)}px`;
}

const brief = (text) => (text === "" ? "" : String(Number(Number(text).toPrecision(4))));

function watchLines(svg) {
  const table = readTable(svg.closest("figure"));
  const [head, rows] = [table[0], table.slice(1)];
  const [across, up] = readScales(svg);
  const places = rows.map((row) => across.at(Number(row[0])));
  const layer = svg.appendChild(document.createElementNS(SVG, "g"));
  layer.setAttribute("pointer-events", "none");
  const add = (name, attributes, kind) => {
    const made = layer.appendChild(document.createElementNS(SVG, name));
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.setAttribute("class", kind);
  };
  return {
    leave() { layer.replaceChildren(); },
    move(event) {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      if (x < across.start - 8 || x > across.end + 8) return null;
      const series = [...svg.querySelectorAll(".series:not(.off)")];
      const columns = series.map((g) => Number(g.dataset.column));
      let best = -1;
      for (let i = 0; i < rows.length; i++) {
        if (!columns.some((c) => rows[i][c] !== "")) continue;
        if (best < 0 || Math.abs(places[i] - x) < Math.abs(places[best] - x)) best = i;
      }
      if (best < 0) return null;
      layer.replaceChildren();
      const line = { x1: places[best], x2: places[best], y1: up.start, y2: up.end };
      add("line", line, "cursor");
      const words = [`${head[0]} ${brief(rows[best][0])}`];
      series.forEach((g, i) => {
        const value = rows[best][columns[i]];
        if (value === "") return;
        const colour = g.getAttribute("class").replace("series", "probe");
        add("circle", { cx: places[best], cy: up.at(Number(value)), r: 3.5 }, colour);
        words.push(`${head[columns[i]]}: ${brief(value)}`);
      });
      return words.join("\n");
    },
  };
}

for (const svg of document.querySelectorAll(".plot svg")) {
  let watcher = null;
  const show = (event) => {
    const own = event.target.closest("[data-tip]");
    if (svg.dataset.scale && watcher === null) watcher = watchLines(svg);
    const lines = watcher ? watcher.move(event) : null;
    const text = own ? own.dataset.tip : lines;
    if (text) say(text, event); else tip.hidden = true;
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", () => {
    tip.hidden = true;
    if (watcher) watcher.leave();
  });
}
