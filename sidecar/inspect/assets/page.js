"use strict";
(() => {
  const agents = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const SVG = "http://www.w3.org/2000/svg";
  const AXIS = 46;
  const COLOURS = { landed: "--good", cancelled: "--bad", open: "--warn" };

  const el = (parent, name, attributes = {}, text) => {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };
  const short = (n) => {
    const a = Math.abs(n);
    if (a >= 1e9) return trim(n / 1e9) + "G";
    if (a >= 1e6) return trim(n / 1e6) + "M";
    if (a >= 1e3) return trim(n / 1e3) + "k";
    return String(Math.round(n));
  };
  const trim = (n) => (Math.abs(n) >= 100 ? Math.round(n).toString() : n.toFixed(1).replace(/\.0$/, ""));
  const percent = (a, b) => (b > 0 ? Math.round((100 * a) / b) + " %" : "–");
  const clock = (ms) => new Date(ms).toISOString().slice(0, 16).replace("T", " ");
  const lasted = (ms) => {
    const s = ms / 1000;
    if (s < 60) return s.toFixed(1) + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";
    return Math.floor(s / 3600) + " h " + Math.round((s % 3600) / 60) + " min";
  };
  const niceStep = (span, count) => {
    const raw = span / Math.max(1, count);
    const base = 10 ** Math.floor(Math.log10(raw || 1));
    return [1, 2, 2.5, 5, 10].map((m) => m * base).find((s) => s >= raw) || base * 10;
  };

  // The pointer's tooltip; a tap shows it too, a tap elsewhere hides it.
  const show = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, event.clientX + 14), innerWidth - width - 8);
    const top = event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18;
    tip.style.left = left + "px";
    tip.style.top = Math.max(8, top) + "px";
  };
  const hide = () => (tip.hidden = true);
  document.addEventListener("pointerdown", (e) => e.target.closest(".chart") || hide());
  addEventListener("scroll", hide, { passive: true });

  /** A frame with a fixed y axis and a plot that scrolls when it is wider than its place. */
  const frame = (host, zoom, height, yMax, yTicks, top) => {
    const old = host.querySelector(".scroll");
    const place = old ? (old.scrollLeft + old.clientWidth / 2) / Math.max(1, old.scrollWidth) : 0;
    host.replaceChildren();
    const axis = el(host, "svg", { width: AXIS, height, class: "axis", "aria-hidden": "true" });
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    host.append(scroll);
    const width = Math.max(120, host.clientWidth - AXIS) * zoom;
    const plot = el(scroll, "svg", { width, height, role: "img" });
    const bottom = height - 22;
    const y = (v) => bottom - (Math.min(v, yMax) / yMax) * (bottom - top);
    const step = niceStep(yMax, yTicks);
    for (let v = 0; v <= yMax * 1.0001; v += step) {
      el(axis, "text", { x: AXIS - 8, y: y(v) + 4 }, short(v));
      el(plot, "line", { x1: 0, x2: width, y1: y(v), y2: y(v), stroke: "var(--grid)" });
    }
    return { plot, width, y, top, bottom, centre: () => (scroll.scrollLeft = place * scroll.scrollWidth - scroll.clientWidth / 2) };
  };

  const along = (rows, value, x) => {
    let low = 0, high = rows.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (value(rows[middle]) < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - value(rows[low - 1]) < value(rows[low]) - x ? low - 1 : low;
  };

  const xTicks = (f, view, x) => {
    const count = Math.max(2, Math.floor(f.width / 110));
    if (view.byTime) {
      for (let i = 0; i <= count; i++) {
        const t = view.t0 + ((view.t1 - view.t0) * i) / count;
        const anchor = i === 0 ? "start" : i === count ? "end" : "middle";
        el(f.plot, "text", { x: x(t), y: f.bottom + 16, "text-anchor": anchor }, clock(t).slice(5));
      }
      return;
    }
    const step = Math.max(1, niceStep(view.steps, count));
    for (let n = 0; n <= view.steps; n += step) {
      const anchor = n === 0 ? "start" : n + step > view.steps ? "end" : "middle";
      el(f.plot, "text", { x: x(n), y: f.bottom + 16, "text-anchor": anchor }, n === 0 ? "step 0" : String(n));
    }
  };

  const positions = (agent, view, width) => {
    const low = view.byTime ? view.t0 : 0;
    const high = view.byTime ? Math.max(view.t1, view.t0 + 1) : Math.max(1, view.steps + 0.5);
    return (v) => ((v - low) / (high - low)) * (width - 12) + 4;
  };

  const drawContext = (host, agent, view) => {
    const last = agent.limits[agent.limits.length - 1];
    const top = 34;
    const highest = Math.max(1, ...agent.points.map((p) => p[2]), ...agent.limits.map((l) => l[2] && l[6]));
    const yMax = Math.max(highest * 1.04, last ? Math.min(last[2], highest * 1.25) : 0);
    const f = frame(host, view.zoom, 330, yMax, 5, top);
    const at = positions(agent, view, f.width);
    const x = (row) => at(view.byTime ? row[1] : row[0]);
    xTicks(f, view, at);

    for (const c of agent.compactions) {
      const a = at(view.byTime ? c.t0 : c.x0), b = at(view.byTime ? c.t1 : c.x1);
      el(f.plot, "rect", { x: a, y: top, width: Math.max(1.5, b - a), height: f.bottom - top, fill: `var(${COLOURS[c.outcome]})`, opacity: 0.1 });
    }
    if (agent.points.length) {
      // Over time a pause is level: nothing grows while nobody works.
      const go = (px, py) => (view.byTime ? `H${px}V${py}` : `L${px} ${py}`);
      const path = agent.points.map((p, i) => {
        const px = x(p).toFixed(1), py = f.y(p[2]).toFixed(1);
        return i ? go(px, py) : `M${px} ${py}`;
      }).join("");
      const first = x(agent.points[0]), end = x(agent.points[agent.points.length - 1]);
      el(f.plot, "path", { d: `${path}L${end} ${f.bottom}L${first} ${f.bottom}Z`, fill: "var(--fill)" });
      el(f.plot, "path", { d: path, fill: "none", stroke: "var(--accent)", "stroke-width": agent.points.length > f.width ? 0.8 : 1.7, "stroke-linejoin": "round", class: "used" });
    }
    const rules = [[3, "soft", "--soft"], [4, "snip", "--out"], [5, "trigger", "--warn"], [6, "block", "--bad"]];
    for (const [column, name, colour] of rules) {
      let path = "";
      agent.limits.forEach((l, i) => {
        const next = agent.limits[i + 1];
        const from = i === 0 ? 0 : x(l), to = next ? x(next) : f.width;
        if (l[column] > 0 && l[column] <= yMax) path += `M${from} ${f.y(l[column])}L${to} ${f.y(l[column])}`;
      });
      if (!path) continue;
      el(f.plot, "path", { d: path, stroke: `var(${colour})`, "stroke-width": 1.2, "stroke-dasharray": "5 4", opacity: 0.85, class: "rule", "data-rule": name });
      if (last && last[column] <= yMax)
        el(f.plot, "text", { x: f.width - 3, y: f.y(last[column]) - 4, "text-anchor": "end", style: `fill: var(${colour}); paint-order: stroke; stroke: var(--card); stroke-width: 3px` }, name);
    }
    hover(f, host, agent.points, (p) => view.byTime ? p[1] : p[0], at, (p) => {
      const l = agent.limits.filter((l) => l[0] <= p[0]).pop();
      const share = l && l[2] ? `, ${percent(p[2], l[2])} of ${short(l[2])}` : "";
      return `${p[2].toLocaleString("en")} tokens${share}\n${p[0] % 1 ? "after step " + Math.floor(p[0]) : "step " + p[0]} · ${clock(p[1])} UTC`;
    });
    drawRewrites(f, agent, view, x);
    drawBrackets(f, agent, view, at, top);
    f.centre();
  };

  const drawBrackets = (f, agent, view, at, top) => {
    let taken = -99;
    for (const c of agent.compactions) {
      const a = at(view.byTime ? c.t0 : c.x0), b = Math.max(a + 5, at(view.byTime ? c.t1 : c.x1));
      const link = el(f.plot, "a", { href: "#" + c.anchor, class: "bracket", "aria-label": c.words, "data-outcome": c.outcome });
      el(link, "path", { d: `M${a} ${top - 4}V${top - 11}H${b}V${top - 4}`, fill: "none", stroke: `var(${COLOURS[c.outcome]})`, "stroke-width": 1.8, class: "mark" });
      el(link, "rect", { x: a - 4, y: 0, width: b - a + 8, height: top, fill: "transparent" });
      const middle = (a + b) / 2, half = String(c.n).length * 3.5 + 3;
      if (middle - half > taken) {
        el(link, "text", { x: middle, y: top - 17, "text-anchor": "middle" }, c.n);
        taken = middle + half;
      }
      link.addEventListener("pointermove", (e) => { e.stopPropagation(); show(e, c.words); });
      link.addEventListener("pointerleave", hide);
      link.addEventListener("click", () => open(c.anchor));
    }
  };

  const drawRewrites = (f, agent, view, x) => {
    for (const r of agent.rewrites) {
      const cx = x(r), cy = f.bottom - 6;
      const mark = el(f.plot, "path", { d: `M${cx} ${cy - 5}l5 5l-5 5l-5 -5Z`, fill: "var(--out)", class: "rewrite" });
      mark.addEventListener("pointermove", (e) => { e.stopPropagation(); show(e, r[3]); });
      mark.addEventListener("pointerleave", hide);
    }
  };

  /** A cursor that follows the pointer and tells about the nearest row. */
  const hover = (f, host, rows, value, at, words) => {
    if (!rows.length) return;
    const cursor = el(f.plot, "line", { y1: f.top, y2: f.bottom, stroke: "var(--faint)", opacity: 0 });
    const area = el(f.plot, "rect", { x: 0, y: f.top, width: f.width, height: f.bottom - f.top, fill: "transparent" });
    const move = (e) => {
      const px = e.clientX - f.plot.getBoundingClientRect().left;
      const row = rows[along(rows, (r) => at(value(r)), px)];
      const cx = at(value(row));
      cursor.setAttribute("x1", cx);
      cursor.setAttribute("x2", cx);
      cursor.setAttribute("opacity", 1);
      show(e, words(row));
    };
    area.addEventListener("pointermove", move);
    area.addEventListener("pointerdown", move);
    area.addEventListener("pointerleave", () => { cursor.setAttribute("opacity", 0); hide(); });
  };

  /** Joins neighbours so that a bar is at least three pixels wide: sums of the numeric columns from `from` on. */
  const joined = (rows, width, from, columns) => {
    const size = Math.ceil(rows.length / Math.max(1, Math.floor(width / 3)));
    if (size <= 1) return rows.map((r) => ({ rows: [r], sums: r.slice(from, from + columns) }));
    const groups = [];
    for (let i = 0; i < rows.length; i += size) {
      const part = rows.slice(i, i + size);
      const sums = Array(columns).fill(0);
      for (const r of part) for (let k = 0; k < columns; k++) sums[k] += r[from + k];
      groups.push({ rows: part, sums });
    }
    return groups;
  };

  const bars = (host, view, groups, height, ticks, layers, words, after) => {
    const total = (g) => layers.reduce((sum, [value]) => sum + value(g), 0);
    const yMax = Math.max(1, ...groups.map(total)) * 1.06;
    const f = frame(host, view.zoom, height, yMax, ticks, 20);
    const slot = (f.width - 4) / Math.max(1, groups.length);
    const wide = Math.max(1, Math.min(26, slot * (slot > 5 ? 0.78 : 0.95)));
    groups.forEach((g, i) => {
      let base = 0;
      const x = 2 + i * slot + (slot - wide) / 2;
      for (const [value, colour] of layers) {
        const v = value(g);
        if (v > 0) el(f.plot, "rect", { x: x.toFixed(1), y: f.y(base + v).toFixed(1), width: wide.toFixed(1), height: Math.max(0.6, f.y(base) - f.y(base + v)).toFixed(1), fill: `var(${colour})` });
        base += v;
      }
    });
    const indexed = groups.map((g, i) => [i + 0.5, g]);
    hover(f, host, indexed, (r) => r[0], (v) => 2 + v * slot, (r) => words(r[1]));
    after(f, slot);
    f.centre();
  };

  const barTicks = (f, slot, groups, label) => {
    const every = Math.max(1, Math.ceil(96 / slot));
    for (let i = 0; i < groups.length; i += every)
      if (i === 0 || 2 + i * slot < f.width - 40)
        el(f.plot, "text", { x: 2 + (i + 0.5) * slot, y: f.bottom + 16, "text-anchor": i ? "middle" : "start" }, label(groups[i].rows[0]));
  };

  const drawCache = (host, agent, view) => {
    const width = (host.clientWidth - AXIS) * view.zoom;
    const groups = joined(agent.requests, width, 2, 4);
    const mean = (k) => (g) => g.sums[k] / g.rows.length;
    bars(host, view, groups, 210, 4, [[mean(1), "--hit"], [(g) => (g.sums[0] - g.sums[1]) / g.rows.length, "--miss"]], (g) => {
      const [first, end] = [g.rows[0], g.rows[g.rows.length - 1]];
      const why = g.rows.filter((r) => r[6]).map((r) => r[6]);
      const what = first === end ? "step " + first[0] : `steps ${first[0]}–${end[0]}, mean`;
      return `${what} · ${clock(first[1])} UTC\n${short(mean(1)(g))} from the cache, ${short(mean(0)(g) - mean(1)(g))} new (${percent(g.sums[1], g.sums[0])})${why.length ? "\n" + why.slice(0, 3).join("\n") : ""}`;
    }, (f, slot) => {
      groups.forEach((g, i) => {
        const loss = g.rows.find((r) => r[5] > 0);
        if (!loss) return;
        const cx = 2 + (i + 0.5) * slot;
        const odd = g.rows.some((r) => r[5] > 0 && r[7]);
        el(f.plot, "path", { d: `M${cx - 4} 5h8l-4 8Z`, fill: odd ? "var(--bad)" : "var(--faint)", class: odd ? "loss odd" : "loss" });
      });
      barTicks(f, slot, groups, (r) => "step " + r[0]);
    });
  };

  const drawTurns = (host, agent, view) => {
    const width = (host.clientWidth - AXIS) * view.zoom;
    const groups = joined(agent.turns, width, 2, 5);
    bars(host, view, groups, 190, 4, [[(g) => g.sums[1], "--hit"], [(g) => g.sums[0], "--miss"], [(g) => g.sums[2], "--out"]], (g) => {
      const [first, end] = [g.rows[0], g.rows[g.rows.length - 1]];
      const what = first === end ? `turn ${first[0]}${first[7] ? " · " + first[7] : ""}` : `turns ${first[0]}–${end[0]}`;
      return `${what}\ncost ${short(g.sums[0] + g.sums[1] + g.sums[2])}: new ${short(g.sums[0])}, cached ${short(g.sums[1])}, output ${short(g.sums[2])}\n${short(g.sums[3])} prompt tokens, ${short(g.sums[4])} written${first === end && first[8] ? "\n" + first[8] : ""}`;
    }, (f, slot) => barTicks(f, slot, groups, (r) => "turn " + r[0]));
  };

  const DRAW = { context: drawContext, cache: drawCache, turns: drawTurns };
  const charts = [...document.querySelectorAll(".chart")].map((host) => {
    const agent = agents[Number(host.dataset.agent)];
    const view = { zoom: 1, byTime: false, steps: agent.steps, t0: agent.begin, t1: agent.end };
    const draw = () => host.clientWidth && DRAW[host.dataset.chart](host, agent, view);
    const tools = host.closest(".card").querySelector(".tools");
    tools?.addEventListener("click", (e) => {
      const button = e.target.closest("button");
      if (!button) return;
      if (button.dataset.zoom) view.zoom = Math.min(16, Math.max(1, view.zoom * Number(button.dataset.zoom)));
      else view.byTime = button.dataset.axis === "time";
      for (const b of tools.querySelectorAll("[data-axis]"))
        b.setAttribute("aria-pressed", String((b.dataset.axis === "time") === view.byTime));
      draw();
    });
    return { host, draw, width: 0 };
  });
  const observer = new ResizeObserver(() => {
    for (const c of charts)
      if (c.host.clientWidth !== c.width) { c.width = c.host.clientWidth; c.draw(); }
  });
  for (const c of charts) { c.width = c.host.clientWidth; c.draw(); observer.observe(c.host); }

  const open = (id) => {
    const target = document.getElementById(id);
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  if (location.hash.length > 1) open(location.hash.slice(1));
  document.getElementById("theme")?.addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  });
})();
