"use strict";
// Draws the report's charts from the numbers in the page. Names of events are data: they are only ever set as text.
(() => {
  const { runs: RUNS, charts: NUMBERS } = JSON.parse(document.getElementById("numbers").textContent);
  const tip = document.getElementById("tip");
  const colour = (place) => `var(--c${place % 6})`;
  const dashes = ["", "7 3", "2 3", "9 3 2 3", "4 4", "1 3"]; // so that runs can be told apart without colours
  const runColour = (name) => colour(Math.max(0, RUNS.indexOf(name)));
  const runDash = (name) => dashes[Math.max(0, RUNS.indexOf(name)) % 6];

  // --- Elements ---------------------------------------------------------------------------------------------------
  function make(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "style") Object.assign(node.style, value);
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }
  function shape(parent, name, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }
  const legend = (items) =>
    make("ul", { class: "legend" }, ...items.map(([name, paint]) => make("li", {}, make("i", { style: { color: paint } }), name)));
  function chooser(label, options, chosen, changed) {
    const list = make("select", { onchange: (event) => changed(event.target.value) });
    for (const [value, name] of options) list.append(make("option", { value, selected: value === chosen }, name));
    return make("label", {}, label, list);
  }

  // --- Numbers ----------------------------------------------------------------------------------------------------
  function told(value, digits = 4) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "∞";
    if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7)) return value.toExponential(2).replace("-", "−");
    return String(Number(value.toPrecision(digits))).replace("-", "−");
  }
  const percent = (share, digits = 0) => (share > 0 && share < 0.005 ? "< 1 %" : `${(100 * share).toFixed(digits)} %`);
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  function steps(low, high, wanted) {
    const rough = (high - low) / Math.max(wanted, 1), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
    const found = [];
    for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place += 1) found.push(place * step);
    return found;
  }
  function powers(low, high, wanted) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const parts = last - first <= 2 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil((last - first) / Math.max(wanted, 4)));
    const found = [];
    for (let power = first; power <= last; power += every)
      for (const part of parts) if (part * 10 ** power >= low * 0.999 && part * 10 ** power <= high * 1.001) found.push(part * 10 ** power);
    return found;
  }
  const extent = (values) => values.reduce(([low, high], one) => (Number.isFinite(one) ? [Math.min(low, one), Math.max(high, one)] : [low, high]), [Infinity, -Infinity]);
  const padded = ([low, high], share = 0.06) => {
    const room = (high - low || Math.abs(high) || 1) * share;
    return [low - room, high + room];
  };

  // --- Dates -------------------------------------------------------------------------------------------------------
  // Numbers of a sequence as local dates, where its clock has them: {when(value), ticks(low, high, count), label(value)}.
  function datesOf(calendar) {
    if (!calendar) return { when: told, axis: {} };
    const at = (value) => new Date(calendar.start + value * calendar.unit), day = 86400000;
    const text = (value) => at(value).toISOString();
    const fine = calendar.unit <= 1000;
    const when = (value) => `${text(value).slice(0, 10)} ${text(value).slice(11, fine ? 23 : 19)}`;
    const sizes = [1000, 5000, 15000, 60000, 300000, 900000, 3600000, 3 * 3600000, 6 * 3600000, 12 * 3600000, day, 2 * day, 7 * day, 14 * day];
    let size = day;
    const months = (low, high, count) => {
      const every = [1, 2, 3, 6, 12, 24, 60, 120].find((one) => (high - low) * calendar.unit <= one * 30.4 * day * count * 1.3) ?? 240;
      const found = [], first = at(low);
      for (let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / every) * every; ; month += every) {
        const value = (Date.UTC(Math.floor(month / 12), month % 12, 1) - calendar.start) / calendar.unit;
        if (value > high) return found;
        if (value >= low) found.push(value);
      }
    };
    const xticks = (low, high, count) => {
      size = sizes.find((one) => ((high - low) * calendar.unit) / one <= count) ?? 31 * day;
      if (size > 14 * day) return months(low, high, count);
      const found = [], first = Math.ceil((calendar.start + low * calendar.unit) / size) * size;
      for (let place = first; place <= calendar.start + high * calendar.unit; place += size) found.push((place - calendar.start) / calendar.unit);
      return found;
    };
    const xform = (value) => {
      const told = text(value);
      if (size > 14 * day) return told.slice(0, 7);
      if (size >= day || told.slice(11, 19) === "00:00:00") return told.slice(5, 10);
      return told.slice(11, size < 60000 ? 19 : 16);
    };
    return { when, axis: { xticks, xform } };
  }

  // --- A frame with axes ------------------------------------------------------------------------------------------
  function frame(place, options) {
    const { x, y, height = 260, xlog, ylog, xlabel = "", ylabel = "", xform = told, yform = told, bare } = options;
    const width = Math.max(220, Math.min(place.clientWidth, options.square ? 540 : Infinity));
    const wide = (low, high, log, count) => (log ? powers(low, high, count) : steps(low, high, count));
    const yticks = options.yticks ?? wide(y[0], y[1], ylog, height / 48);
    const longest = Math.max(0, ...yticks.map((one) => yform(one, 3).length));
    const left = options.left ?? Math.min(110, 14 + 7 * longest), right = options.right ?? 14;
    const top = ylabel ? 22 : 8, bottom = bare ? 8 : xlabel ? 42 : 24;
    const tall = options.square ? Math.min(width - left - right, 420) + top + bottom : height;
    const w = width - left - right, h = tall - top - bottom;
    const scale = (domain, from, to, log) => {
      const [a, b] = log ? domain.map(Math.log) : domain;
      return (value) => from + (((log ? Math.log(value) : value) - a) / (b - a || 1)) * (to - from);
    };
    const svg = shape(place, "svg", { width, viewBox: `0 0 ${width} ${tall}`, height: tall, role: "img", "aria-label": place.dataset.label ?? "" });
    const X = scale(x, left, left + w, xlog), Y = scale(y, top + h, top, ylog);
    for (const one of yticks) {
      shape(svg, "line", { class: "grid", x1: left, x2: left + w, y1: Y(one), y2: Y(one) });
      shape(svg, "text", { x: left - 7, y: Y(one) + 4, "text-anchor": "end" }, yform(one, 3));
    }
    if (!bare) {
      const xticks = options.xticks?.(x[0], x[1], clamp(w / 85, 3, 10)) ?? wide(x[0], x[1], xlog, clamp(w / 85, 3, 10));
      for (const one of xticks) {
        shape(svg, "line", { class: "axis", x1: X(one), x2: X(one), y1: top + h, y2: top + h + 4 });
        shape(svg, "text", { x: X(one), y: top + h + 17, "text-anchor": "middle" }, xform(one, 6));
      }
    }
    shape(svg, "line", { class: "axis", x1: left, x2: left + w, y1: top + h, y2: top + h });
    if (xlabel) shape(svg, "text", { x: left + w / 2, y: tall - 4, "text-anchor": "middle" }, xlabel);
    if (ylabel) shape(svg, "text", { x: 0, y: 11, "text-anchor": "start" }, ylabel);
    const id = `clip${(frame.count = (frame.count ?? 0) + 1)}`;
    shape(shape(shape(svg, "defs", {}), "clipPath", { id }), "rect", { x: left, y: top - 4, width: w, height: h + 8 });
    const plot = shape(svg, "g", { "clip-path": `url(#${id})` });
    return { svg, plot, X, Y, left, top, w, h, width };
  }
  const path = (xs, ys, X, Y) => {
    let out = "", pen = "M";
    for (let place = 0; place < xs.length; place += 1) {
      if (ys[place] === null || ys[place] === undefined) { pen = "M"; continue; }
      out += `${pen}${X(xs[place]).toFixed(1)},${Y(ys[place]).toFixed(1)}`;
      pen = "L";
    }
    return out;
  };
  const line = (at, xs, ys, paint, more = {}) => shape(at.plot, "path", { d: path(xs, ys, at.X, at.Y), fill: "none", stroke: paint, "stroke-width": 2, "stroke-linejoin": "round", ...more });
  function area(at, xs, low, high, paint, opacity) {
    const back = path([...xs].reverse(), [...high].reverse(), at.X, at.Y).replace("M", "L");
    shape(at.plot, "path", { d: `${path(xs, low, at.X, at.Y)}${back}Z`, fill: paint, "fill-opacity": opacity, stroke: "none" });
  }

  // --- What is under the pointer ----------------------------------------------------------------------------------
  function show(event, text) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${clamp(event.clientX + 14, 4, innerWidth - box.width - 4)}px`;
    tip.style.top = `${event.clientY - box.height - 12 < 4 ? event.clientY + 18 : event.clientY - box.height - 12}px`;
  }
  const hide = () => { tip.hidden = true; };
  // `nearest(x, y)` gives { x, y, text } in pixels of the frame, or nothing.
  function hover(at, nearest) {
    const ring = shape(at.svg, "circle", { r: 5, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, visibility: "hidden" });
    const over = (event) => {
      const box = at.svg.getBoundingClientRect();
      const found = nearest(((event.clientX - box.left) / box.width) * at.width, ((event.clientY - box.top) / box.width) * at.width);
      if (!found) { off(); return; }
      ring.setAttribute("cx", found.x); ring.setAttribute("cy", found.y); ring.setAttribute("visibility", "visible");
      show(event, found.text);
    };
    const off = () => { ring.setAttribute("visibility", "hidden"); hide(); };
    at.svg.addEventListener("pointermove", over);
    at.svg.addEventListener("pointerdown", over);
    at.svg.addEventListener("pointerleave", off);
  }
  const closest = (points, reach = 40) => (x, y) => {
    let best = null, least = reach * reach;
    for (const one of points) {
      const far = (one.x - x) ** 2 + (one.y - y) ** 2;
      if (far < least) { least = far; best = one; }
    }
    return best;
  };
  addEventListener("scroll", hide, { passive: true });

  // --- Charts: each is given its place and its numbers once, and returns what draws it anew -------------------------
  const charts = {};

  charts.frequent = (place, { rows }) => {
    const most = Math.max(...rows.map((row) => row[1]));
    place.append(make("ul", { class: "bars", "aria-label": place.dataset.label }, ...rows.map(([name, count]) =>
      make("li", { title: `${name}: ${count}` }, make("b", {}, name), make("i", { style: { width: `${(100 * count) / most}%` } }), make("em", {}, count.toLocaleString("en"))))));
    return () => {};
  };

  charts.gaps = (place, { edges, counts, zero }) => () => {
    const most = Math.max(...counts);
    const at = frame(place, { x: [edges[0], edges[edges.length - 1]], y: [0, most * 1.05], xlog: true, xlabel: zero ? `gap (${zero.toLocaleString("en")} gaps of zero are not shown)` : "gap", ylabel: "gaps" });
    const points = counts.map((count, bin) => {
      const [a, b] = [at.X(edges[bin]), at.X(edges[bin + 1])];
      if (count) shape(at.plot, "rect", { x: a + 0.5, width: Math.max(1, b - a - 1), y: at.Y(count), height: at.Y(0) - at.Y(count), fill: "var(--c0)", "fill-opacity": 0.85 });
      return { x: (a + b) / 2, y: at.Y(count), text: `${told(edges[bin], 3)} to ${told(edges[bin + 1], 3)}: ${count}` };
    });
    hover(at, (x) => points.reduce((best, one) => (Math.abs(one.x - x) < Math.abs(best.x - x) ? one : best)));
  };

  charts.learning = (place, { runs }) => () => {
    place.append(legend(runs.map((run) => [run.name, runColour(run.name)])));
    const strong = (run) => (run.dev.length ? run.dev : run.train);
    const epochs = runs.flatMap((run) => run.train.map((one) => one[0]));
    // The first epochs are often far below all others: the axis begins where the dev curves have settled a little.
    const values = runs.flatMap((run) => [...strong(run), ...run.train].map((one) => one[1])).sort((a, b) => a - b);
    const low = values[Math.floor(values.length * 0.03)], high = values[values.length - 1];
    const at = frame(place, { x: [Math.min(...epochs), Math.max(...epochs)], y: padded([low, high]), xticks: (low_, high_, count) => steps(low_, high_, count).filter(Number.isInteger), xlabel: "epoch", ylabel: "log-likelihood, nats per event", height: 320 });
    const points = [];
    for (const run of runs) {
      const paint = runColour(run.name), unzip = (pairs) => [pairs.map((one) => one[0]), pairs.map((one) => one[1])];
      if (run.dev.length) line(at, ...unzip(run.train), paint, { "stroke-width": 1, "stroke-opacity": 0.6 });
      line(at, ...unzip(strong(run)), paint, { "stroke-dasharray": runDash(run.name) });
      for (const [epoch, value] of strong(run)) points.push({ x: at.X(epoch), y: at.Y(value), text: `${run.name}\nepoch ${epoch}: ${told(value)} on ${run.dev.length ? "dev" : "train"}` });
      if (run.best) {
        const [epoch, value] = run.best, right = at.X(epoch) > at.left + at.w - 60;
        shape(at.plot, "circle", { cx: at.X(epoch), cy: at.Y(value), r: 4.5, fill: paint });
        shape(at.svg, "text", { class: "name", x: at.X(epoch), y: at.Y(value) - 9, "text-anchor": right ? "end" : "middle" }, value.toFixed(3).replace("-", "−"));
      }
    }
    hover(at, closest(points));
  };

  charts.forest = (place, { rows }) => () => {
    const narrow = place.clientWidth < 620, step = narrow ? 46 : 34;
    const at = frame(place, { x: padded(extent(rows.flatMap((row) => [row.low, row.high]))), y: [0, rows.length], yticks: [], left: narrow ? 6 : 220, right: 70, height: rows.length * step + 50, xlabel: "log-likelihood, nats per event" });
    const points = [];
    rows.forEach((row, place_) => {
      const y = at.top + (place_ + (narrow ? 0.7 : 0.5)) * step, paint = row.place === null ? "var(--soft)" : runColour(row.place);
      shape(at.svg, "line", { class: "grid", x1: at.left, x2: at.left + at.w, y1: y, y2: y });
      shape(at.svg, "line", { x1: at.X(row.low), x2: at.X(row.high), y1: y, y2: y, stroke: paint, "stroke-width": 3, "stroke-linecap": "round", "stroke-opacity": 0.55 });
      shape(at.svg, "circle", { cx: at.X(row.value), cy: y, r: 5.5, fill: paint });
      const name = row.name.length > 30 ? `${row.name.slice(0, 29)}…` : row.name;
      shape(at.svg, "text", narrow ? { class: "name", x: 0, y: y - 13 } : { class: "name", x: at.left - 14, y: y + 4, "text-anchor": "end" }, name);
      shape(at.svg, "text", { x: at.left + at.w + 8, y: y + 4 }, row.value.toFixed(3).replace("-", "−"));
      points.push({ x: at.X(row.value), y, text: `${row.name}: ${told(row.value)}\n95 %: ${told(row.low)} to ${told(row.high)}` });
    });
    hover(at, (x, y) => points.reduce((best, one) => (Math.abs(one.y - y) < Math.abs(best.y - y) ? one : best)));
  };

  // --- One sequence over time: three charts on one axis -----------------------------------------------------------
  charts.course = (place, data) => {
    const box = (name) => document.querySelector(`[data-chart="${name}"]`);
    const { times, events, end, groups, runs } = data, { when, axis } = datesOf(data.calendar);
    const sizes = [30, 60, 120, 300].filter((size) => size < events.length);
    const state = { log: data.log, run: runs.length > 1 ? "totals" : "0", size: sizes.length > 1 ? sizes[1] : 0, first: 0 };
    const pan = make("input", { type: "range", min: 0, value: 0, "aria-label": "Where in the sequence", oninput: () => { state.first = Number(pan.value); redraw(); } });
    const panned = make("label", { class: "wide" }, "Where", pan);
    const controls = make("div", { class: "controls" });
    if (runs.length > 1) controls.append(chooser("Show", [["totals", "totals of all runs"], ...runs.map((run, place_) => [String(place_), run.name])], "totals", (value) => { state.run = value; redraw(); }));
    if (sizes.length) controls.append(chooser("Events at a time", [...sizes.map((size) => [String(size), String(size)]), ["0", "all"]], String(state.size), (value) => { state.size = Number(value); fit(); redraw(); }), panned);
    if (data.log) controls.append(chooser("Axis", [["log", "logarithmic"], ["linear", "linear"]], "log", (value) => { state.log = value === "log"; redraw(); }));
    place.parentNode.insertBefore(controls, place);
    const fit = () => {
      const most = state.size ? Math.max(0, events.length - state.size) : 0;
      pan.max = most; pan.disabled = most === 0; state.first = clamp(state.first, 0, most); pan.value = state.first;
    };
    const shown = () => {
      if (!state.size) return [data.start, end];
      const last = Math.min(events.length, state.first + state.size) - 1;
      const from = state.first ? events[state.first - 1][0] : data.start, to = last === events.length - 1 ? end : events[last][0];
      pan.setAttribute("aria-valuetext", `from ${when(from, 6)} to ${when(to, 6)}`);
      return from < to ? [from, to] : [from, from + 1];
    };
    const slice = (low, high) => {
      let a = 0, b = times.length;
      while (a < b - 1 && times[a + 1] < low) a += 1;
      while (b > a + 1 && times[b - 2] > high) b -= 1;
      return [a, b];
    };
    const labels = groups.map((name, place_) => [name, colour(place_)]);
    const narrow = place.clientWidth < 560, longest = Math.max(...groups.map((name) => Math.min(name.length, 18)));
    const left = narrow ? 58 : clamp(16 + 7 * longest, 58, 140), fits = narrow ? 8 : 18;
    function drawCourse(x) {
      place.replaceChildren();
      const [a, b] = slice(...x), xs = times.slice(a, b), one = state.run === "totals" ? null : runs[Number(state.run)];
      const lines = one ? one.groups.map((values, place_) => [groups[place_], values.slice(a, b), colour(place_), ""]) : runs.map((run) => [run.name, run.total.slice(a, b), runColour(run.name), runDash(run.name)]);
      place.append(legend(one ? [["all events", "var(--line)"], ...labels] : lines.map(([name, , paint]) => [name, paint])));
      const tops = [...lines.flatMap((row) => row[1]), ...(one ? one.total.slice(a, b) : [])].filter(Number.isFinite).sort((p, q) => p - q);
      // On a logarithmic axis the lowest of all is left out: what is hardly ever reached would squeeze the rest.
      const positive = tops.filter((value) => value > 0), highest = tops[tops.length - 1] || 1;
      const log = state.log && positive.length > 1, least = log ? Math.max(positive[Math.floor(positive.length * 0.02)], highest * 1e-8) / 1.5 : 0;
      const at = frame(place, { x, y: log ? [least, highest * 1.5] : [0, highest * 1.06], ylog: log, height: 270, left, ylabel: `events per ${data.unit}`, ...axis });
      if (log) { const linear = at.Y; at.Y = (value) => linear(Math.max(value, least)); }
      if (one) area(at, xs, xs.map(() => least), one.total.slice(a, b), "var(--line)", 0.75);
      else {
        // Runs of one kind of model: what lies between them is how far they leave the intensity open.
        for (const kind of new Set(runs.map((run) => run.kind))) {
          const alike = runs.filter((run) => run.kind === kind).map((run) => run.total.slice(a, b));
          if (alike.length > 1) area(at, xs, xs.map((_, place_) => Math.min(...alike.map((row) => row[place_]))), xs.map((_, place_) => Math.max(...alike.map((row) => row[place_]))), "var(--soft)", 0.22);
        }
      }
      for (const [, ys, paint, dash] of lines) line(at, xs, ys, paint, { "stroke-width": 1.6, "stroke-dasharray": dash });
      hover(at, (px) => {
        if (!xs.length) return null;
        let best = 0;
        for (let place_ = 0; place_ < xs.length; place_ += 1) if (Math.abs(at.X(xs[place_]) - px) < Math.abs(at.X(xs[best]) - px)) best = place_;
        const rows = [...(one ? [["all events", one.total.slice(a, b)]] : []), ...lines];
        return { x: at.X(xs[best]), y: at.Y(rows[0][1][best]), text: `at ${when(xs[best], 6)}\n${rows.map(([name, ys]) => `${name}: ${told(ys[best], 3)}`).join("\n")}` };
      });
    }
    function drawRaster(x) {
      const host = box("raster"), step = 20;
      if (!host) return;
      host.replaceChildren();
      if (narrow) host.append(legend(labels));
      const at = frame(host, { x, y: [0, groups.length], yticks: [], height: groups.length * step + 34, left, ...axis });
      groups.forEach((name, place_) => { if (!narrow) shape(at.svg, "text", { x: left - 7, y: at.top + (place_ + 0.5) * step + 4, "text-anchor": "end" }, name.length > fits ? `${name.slice(0, fits - 1)}…` : name); });
      const points = [];
      for (const [time, group, name] of events) {
        if (time < x[0] || time > x[1] || group < 0) continue;
        const px = at.X(time), py = at.top + group * step;
        shape(at.plot, "line", { x1: px, x2: px, y1: py + 3, y2: py + step - 3, stroke: colour(group), "stroke-width": 1.8 });
        points.push({ x: px, y: py + step / 2, text: `${name}\nat ${when(time, 8)}` });
      }
      hover(at, closest(points, 60));
    }
    function drawWaiting(x) {
      const host = box("waiting");
      if (!host) return;
      host.replaceChildren();
      const number = state.run === "totals" ? 0 : Number(state.run), run = runs[number], paint = runColour(run.name);
      if (runs.length > 1) host.append(legend([[`${run.name}${state.run === "totals" ? " (choose another run above)" : ""}`, paint]]));
      const rows = run.starts.map((start, place_) => ({ start, stop: start + run.gaps[place_], gap: run.gaps[place_], waits: run.waits[place_] })).filter((row) => row.stop >= x[0] && row.start <= x[1]);
      const values = rows.flatMap((row) => [row.gap, row.waits[0], row.waits[4]]).filter((value) => Number.isFinite(value) && value > 0);
      if (!values.length) { host.append(make("p", { class: "remark" }, "No gap to show.")); return; }
      const [low, high] = extent(values);
      const at = frame(host, { x, y: [low / 1.3, high * 1.3], ylog: true, height: 240, left, xlabel: data.xlabel, ylabel: `waiting time${data.unit === "unit of time" ? "" : ` (${data.unit}s)`}`, ...axis });
      const Y = (value) => (value === null ? at.top - 4 : clamp(at.Y(Math.max(value, low / 1.3)), at.top - 4, at.top + at.h));
      const points = [];
      for (const row of rows) {
        const a = at.X(row.start), b = Math.max(at.X(row.stop), a + 0.8), [w0, w1, w2, w3, w4] = row.waits;
        shape(at.plot, "rect", { x: a, width: b - a, y: Y(w4), height: Math.max(0, Y(w0) - Y(w4)), fill: paint, "fill-opacity": 0.16 });
        shape(at.plot, "rect", { x: a, width: b - a, y: Y(w3), height: Math.max(0, Y(w1) - Y(w3)), fill: paint, "fill-opacity": 0.28 });
        shape(at.plot, "line", { x1: a, x2: b, y1: Y(w2), y2: Y(w2), stroke: paint, "stroke-width": 1.5 });
      }
      for (const row of rows) {
        const [w0, w1, w2, w3, w4] = row.waits, out = row.gap < w0 || (w4 !== null && row.gap > w4);
        const dot = { x: at.X(row.stop), y: Y(row.gap), text: `waited ${told(row.gap)}${out ? ", outside 90 %" : ""}\npredicted ${told(w2, 3)}\n50 %: ${told(w1, 3)} to ${told(w3, 3)}\n90 %: ${told(w0, 3)} to ${told(w4, 3)}` };
        shape(at.plot, "circle", { cx: dot.x, cy: dot.y, r: out ? 3.6 : 2.6, fill: out ? "var(--warn)" : "var(--ink)" });
        points.push(dot);
      }
      hover(at, closest(points));
    }
    const redraw = () => { const x = shown(); drawCourse(x); drawRaster(x); drawWaiting(x); };
    fit();
    return redraw;
  };

  // --- Sampled futures --------------------------------------------------------------------------------------------
  charts.futures = (place, data) => {
    const { begin, cut, end, groups, happened, runs } = data, { when, axis } = datesOf(data.calendar);
    const state = { run: 0 }, step = 18;
    const draw = () => {
      place.replaceChildren();
      if (runs.length > 1) place.append(make("div", { class: "controls" }, chooser("Run", runs.map((run, place_) => [String(place_), run.name]), String(state.run), (value) => { state.run = Number(value); draw(); })));
      place.append(legend(groups.map((name, place_) => [name, colour(place_)])));
      const rows = [["happened", happened], ...runs[state.run].futures.map((marks, place_) => [`future ${place_ + 1}`, marks])];
      const at = frame(place, { x: [begin, end], y: [0, rows.length], yticks: [], height: rows.length * step + 50, left: 78, xlabel: data.xlabel, ...axis });
      const points = [];
      rows.forEach(([name, marks], row) => {
        const top = at.top + (row + (row ? 0.35 : 0)) * step;
        shape(at.svg, "text", { x: at.left - 8, y: top + step / 2 + 3, "text-anchor": "end", class: row ? "" : "name" }, name);
        for (const [time, group, event] of marks) {
          const x = at.X(time), paint = group < 0 ? "var(--soft)" : colour(group);
          shape(at.plot, "line", { x1: x, x2: x, y1: top + 2, y2: top + step - 3, stroke: paint, "stroke-width": 1.8 });
          points.push({ x, y: top + step / 2, text: `${name}: ${event}\nat ${when(time, 8)}` });
        }
      });
      shape(at.plot, "line", { x1: at.X(cut), x2: at.X(cut), y1: at.top, y2: at.top + at.h, stroke: "var(--ink)", "stroke-width": 1, "stroke-dasharray": "3 3" });
      hover(at, closest(points, 60));
    };
    return draw;
  };

  // --- Goodness of fit --------------------------------------------------------------------------------------------
  charts.qq = (place, { runs }) => () => {
    place.append(legend(runs.map((run) => [run.name, runColour(run.name)])));
    const top = Math.max(...runs.map((run) => run.expected[run.expected.length - 1]));
    const at = frame(place, { x: [0, top], y: [0, clamp(Math.max(...runs.flatMap((run) => run.observed)), top, 1.6 * top)], height: 330, xlabel: "quantiles of the unit exponential", ylabel: "quantiles of the rescaled gaps" });
    const loosest = runs.reduce((best, run) => (run.band > best.band ? run : best));
    area(at, loosest.expected, loosest.low, loosest.high, "var(--soft)", 0.18);
    shape(at.plot, "line", { class: "even", x1: at.X(0), y1: at.Y(0), x2: at.X(top), y2: at.Y(top) });
    const points = [];
    for (const run of runs)
      run.expected.forEach((x, place_) => {
        const dot = { x: at.X(x), y: at.Y(run.observed[place_]), text: `${run.name}\nexpected ${told(x, 3)}, observed ${told(run.observed[place_], 3)}` };
        shape(at.plot, "circle", { cx: dot.x, cy: dot.y, r: 2.2, fill: runColour(run.name) });
        points.push(dot);
      });
    hover(at, closest(points, 25));
  };

  charts.surplus = (place, { runs }) => () => {
    place.append(legend(runs.map((run) => [run.name, runColour(run.name)])));
    const band = Math.max(...runs.map((run) => run.band));
    const most = Math.max(1.3 * band, 1.1 * Math.max(...runs.flatMap((run) => run.surplus.map(Math.abs))));
    const at = frame(place, { x: [0, 1], y: [-most, most], height: 330, xlabel: "share of the predicted distribution", ylabel: "observed less expected share" });
    shape(at.plot, "rect", { x: at.left, width: at.w, y: at.Y(band), height: at.Y(-band) - at.Y(band), fill: "var(--soft)", "fill-opacity": 0.18 });
    shape(at.plot, "line", { class: "even", x1: at.X(0), y1: at.Y(0), x2: at.X(1), y2: at.Y(0) });
    const points = [];
    for (const run of runs) {
      line(at, run.share, run.surplus, runColour(run.name), { "stroke-dasharray": runDash(run.name) });
      run.share.forEach((x, place_) => points.push({ x: at.X(x), y: at.Y(run.surplus[place_]), text: `${run.name}\nby ${percent(x)}: ${told(100 * run.surplus[place_], 2)} points` }));
    }
    hover(at, closest(points, 25));
  };

  charts.calibration = (place, { runs }) => () => {
    place.append(legend(runs.map((run) => [run.name, runColour(run.name)])));
    const form = (value) => percent(value);
    const at = frame(place, { x: [0, 1], y: [0, 1], height: 330, xform: form, yform: form, xlabel: "level of the predicted interval", ylabel: "events inside it" });
    shape(at.plot, "line", { class: "even", x1: at.X(0), y1: at.Y(0), x2: at.X(1), y2: at.Y(1) });
    const points = [];
    for (const run of runs) {
      const paint = runColour(run.name);
      line(at, run.levels, run.covered.map((one) => one[0]), paint, { "stroke-dasharray": runDash(run.name) });
      run.levels.forEach((level, place_) => {
        const [share, low, high] = run.covered[place_], x = at.X(level), y = at.Y(share);
        shape(at.plot, "line", { x1: x, x2: x, y1: at.Y(low), y2: at.Y(high), stroke: paint, "stroke-width": 1.2, "stroke-opacity": 0.7 });
        shape(at.plot, "circle", { cx: x, cy: y, r: 2.8, fill: paint });
        points.push({ x, y, text: `${run.name}: ${percent(level)} intervals\nheld for ${percent(share, 1)}\n(${percent(low, 1)} to ${percent(high, 1)})` });
      });
    }
    hover(at, closest(points));
  };

  charts.tenths = (place, { runs }) => () => {
    place.append(legend(runs.map((run) => [run.name, runColour(run.name)])));
    const shares = runs.map((run) => run.bins.map((count) => count / run.events));
    const at = frame(place, { x: [0, 1], y: [0, Math.max(0.15, 1.08 * Math.max(...shares.flat()))], height: 330, xform: (value) => percent(value), yform: (value) => `${told(100 * value, 3)} %`, xlabel: "share of the predicted distribution", ylabel: "events" });
    const few = Math.min(...runs.map((run) => run.events)), half = 1.96 * Math.sqrt(0.09 / few);
    shape(at.plot, "rect", { x: at.left, width: at.w, y: at.Y(0.1 + half), height: at.Y(0.1 - half) - at.Y(0.1 + half), fill: "var(--soft)", "fill-opacity": 0.18 });
    const points = [];
    runs.forEach((run, number) =>
      run.bins.forEach((count, bin) => {
        const room = (at.X(0.1) - at.X(0)) * 0.84, width = room / runs.length, x = at.X(bin / 10) + (at.X(0.1) - at.X(0)) * 0.08 + number * width, y = at.Y(shares[number][bin]);
        shape(at.plot, "rect", { x, width: Math.max(1, width - 1), y, height: at.Y(0) - y, fill: runColour(run.name), "fill-opacity": 0.85 });
        points.push({ x: x + width / 2, y, text: `${run.name}\ntenth ${bin + 1}: ${count} events, ${percent(shares[number][bin], 1)}` });
      }));
    shape(at.plot, "line", { class: "even", x1: at.left, x2: at.left + at.w, y1: at.Y(0.1), y2: at.Y(0.1) });
    hover(at, closest(points, 60));
  };

  charts.reliability = (place, { runs }) => () => {
    place.append(legend(runs.map((run) => [run.name, runColour(run.name)])));
    const form = (value) => percent(value);
    const at = frame(place, { x: [0, 1], y: [0, 1], square: true, xform: form, yform: form, xlabel: "probability of the guess", ylabel: "guesses that were right" });
    shape(at.plot, "line", { class: "even", x1: at.X(0), y1: at.Y(0), x2: at.X(1), y2: at.Y(1) });
    const most = Math.max(...runs.flatMap((run) => run.types.map((row) => row[4]))), points = [];
    for (const run of runs) {
      const paint = runColour(run.name);
      line(at, run.types.map((row) => row[0]), run.types.map((row) => row[1]), paint, { "stroke-width": 1.2, "stroke-opacity": 0.7, "stroke-dasharray": runDash(run.name) });
      for (const [probability, share, low, high, count] of run.types) {
        const x = at.X(probability), y = at.Y(share);
        shape(at.plot, "line", { x1: x, x2: x, y1: at.Y(low), y2: at.Y(high), stroke: paint, "stroke-width": 1.4 });
        shape(at.plot, "circle", { cx: x, cy: y, r: 2.5 + 6 * Math.sqrt(count / most), fill: paint, "fill-opacity": 0.8 });
        points.push({ x, y, text: `${run.name}: ${count} guesses of ${percent(probability)}\nright ${percent(share, 1)} (${percent(low, 1)} to ${percent(high, 1)})` });
      }
    }
    hover(at, closest(points));
  };

  // --- Two runs against each other ----------------------------------------------------------------------------------
  charts.scatter = (place, { runs, counts }) => {
    const state = { x: 0, y: 1 };
    if (runs.length > 2) {
      const options = runs.map((run, number) => [String(number), run.name]);
      place.parentNode.insertBefore(make("div", { class: "controls" }, chooser("Across", options, "0", (value) => { state.x = Number(value); draw(); }), chooser("Upwards", options, "1", (value) => { state.y = Number(value); draw(); })), place);
    }
    function draw() {
      place.replaceChildren();
      const [across, up] = [runs[state.x], runs[state.y]];
      const names = Object.keys(across.rows).filter((name) => name in up.rows);
      const both = padded(extent(names.flatMap((name) => [...across.rows[name], ...up.rows[name]])));
      const at = frame(place, { x: both, y: both, square: true, xlabel: `${across.name}, nats per event`, ylabel: `${up.name}, nats per event` });
      shape(at.plot, "line", { class: "even", x1: at.X(both[0]), y1: at.Y(both[0]), x2: at.X(both[1]), y2: at.Y(both[1]) });
      shape(at.svg, "text", { x: at.left + 8, y: at.top + 14 }, `${up.name} is better`);
      shape(at.svg, "text", { x: at.left + at.w - 6, y: at.top + at.h - 8, "text-anchor": "end" }, `${across.name} is better`);
      const most = Math.max(...names.map((name) => counts[name] ?? 1)), points = [], taken = [];
      names.forEach((name, number) => {
        const [x, x0, x1] = across.rows[name], [y, y0, y1] = up.rows[name], paint = colour(number);
        shape(at.plot, "line", { x1: at.X(x0), x2: at.X(x1), y1: at.Y(y), y2: at.Y(y), stroke: paint, "stroke-width": 1.4 });
        shape(at.plot, "line", { x1: at.X(x), x2: at.X(x), y1: at.Y(y0), y2: at.Y(y1), stroke: paint, "stroke-width": 1.4 });
        const radius = 3.5 + 7 * Math.sqrt((counts[name] ?? 1) / most);
        shape(at.plot, "circle", { cx: at.X(x), cy: at.Y(y), r: radius, fill: paint, "fill-opacity": 0.75 });
        const label = { x: at.X(x) + radius + 4, y: at.Y(y) - radius - 2 };
        const free = taken.every((other) => Math.abs(other.y - label.y) > 13 || Math.abs(other.x - label.x) > 7 * Math.max(name.length, 8));
        if (free && name.length < 24) {
          const end = label.x + 7 * name.length > at.left + at.w;
          shape(at.svg, "text", { class: "name", x: end ? at.X(x) - radius - 4 : label.x, y: label.y, "text-anchor": end ? "end" : "start" }, name);
          taken.push(label);
        }
        points.push({ x: at.X(x), y: at.Y(y), text: `${name} (${counts[name]} events)\n${across.name}: ${told(x)} (${told(x0, 3)} to ${told(x1, 3)})\n${up.name}: ${told(y)} (${told(y0, 3)} to ${told(y1, 3)})` });
      });
      hover(at, closest(points));
    }
    return draw;
  };

  // --- Rules, moment by moment ------------------------------------------------------------------------------------
  charts.moments = (place, data) => {
    const { frames, names, past, always, facts, layers } = data;
    const state = { at: Math.floor(frames.length / 2), chosen: null, timer: null }; // by then there is a past to look back at
    const slider = make("input", { type: "range", min: 0, max: frames.length - 1, value: state.at, id: "moment", "aria-label": "Moment", oninput: () => go(Number(slider.value)) });
    const before = make("button", { type: "button", "aria-label": "Previous moment", onclick: () => go(state.at - 1) }, "◀");
    const after = make("button", { type: "button", "aria-label": "Next moment", onclick: () => go(state.at + 1) }, "▶");
    const play = make("button", { type: "button", onclick: () => (state.timer ? stop() : start()) }, "Play");
    const now = make("p", { class: "now", "aria-live": "polite" });
    const possible = make("div"), behind = make("div", { "aria-live": "polite" }), truth = make("div", { class: "truth" });
    place.append(make("div", { class: "controls" }, before, make("label", { class: "wide" }, slider), after, play), now, make("div", { class: "two" }, possible, behind), truth);
    const start = () => {
      if (state.at === frames.length - 1) go(0);
      play.textContent = "Pause";
      state.timer = setInterval(() => (state.at < frames.length - 1 ? go(state.at + 1, true) : stop()), 900);
    };
    const stop = () => { clearInterval(state.timer); state.timer = null; play.textContent = "Play"; };
    const go = (at, playing = false) => {
      if (!playing && state.timer) stop();
      state.at = clamp(at, 0, frames.length - 1);
      state.chosen = null;
      slider.value = state.at;
      draw();
    };
    const nth = (number) => `${number}${["th", "st", "nd", "rd"][number % 100 > 10 && number % 100 < 14 ? 0 : number % 10] ?? "th"}`;
    const eventAt = (index) => (index === 0 ? [0, "the start (no event yet)"] : [past[index - 1][0], names[past[index - 1][1]]]);

    function drawNow(one) {
      const [time, name] = eventAt(one.seen);
      const outcomes = one.happened.map((happened, place_) => {
        const found = one.events.find((event) => event[0] === happened), rank = one.rank[place_];
        const words = found ? ` (${percent(found[1] / one.total)}, ${rank === 1 ? "the most probable" : `${nth(rank)} most probable`} of ${one.possible})` : " (not among the possible events)";
        return [make("strong", {}, names[happened]), words];
      });
      now.replaceChildren(`Just before ${datesOf(data.calendar).when(one.t, 8)}. The last event was `, make("strong", {}, name), `, ${told(one.t - time)} earlier. What happened next: `, ...outcomes.flatMap((parts, number) => (number ? [", ", ...parts] : parts)), ".");
      slider.setAttribute("aria-valuetext", `just before ${datesOf(data.calendar).when(one.t, 8)}, moment ${state.at + 1} of ${frames.length}`);
      before.disabled = state.at === 0;
      after.disabled = state.at === frames.length - 1;
    }

    function drawPossible(one) {
      const most = Math.max(...one.events.map((event) => event[1]));
      const rows = one.events.map(([name, intensity]) => {
        const came = one.happened.includes(name);
        return make("li", { class: came ? "came" : null }, make("button", { type: "button", "aria-pressed": String(state.chosen === name), onclick: () => { state.chosen = name; draw(); } },
          make("b", {}, names[name], came ? make("span", { class: "mark" }, "happened") : null), make("em", {}, `${told(intensity, 3)} · ${percent(intensity / one.total)}`), make("i", { style: { width: `${(100 * intensity) / most}%` } })));
      });
      const rest = one.possible - one.events.length;
      const focused = possible.contains(document.activeElement) ? [...possible.querySelectorAll("button")].indexOf(document.activeElement) : -1;
      possible.replaceChildren(make("h3", {}, "What could happen ", make("span", { class: "fade" }, `${one.possible} possible, intensity ${told(one.total, 3)} in all`)), make("ul", { class: "possible" }, ...rows), rest > 0 ? make("p", { class: "told" }, `and ${rest} more with lower intensities`) : one.possible ? "" : make("p", { class: "told" }, "Nothing is possible now but what happens unpredicted."));
      if (focused >= 0) possible.querySelectorAll("button")[focused]?.focus();
    }

    function lane(host, one, heads) {
      const shortest = Math.max(1e-12, ...[Math.min(...past.slice(Math.max(0, one.seen - 60), one.seen).map(([time]) => one.t - time).filter((ago) => ago > 0), one.t || 1)]);
      const longest = Math.max(one.t, shortest * 2), width = Math.max(200, host.clientWidth || behind.clientWidth), height = 12 + 13 * heads.length;
      const X = (ago) => width - 8 - (Math.log(Math.max(ago, shortest) / shortest) / Math.log(longest / shortest)) * (width - 16);
      const svg = shape(host, "svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
      shape(svg, "line", { class: "axis", x1: 0, x2: width, y1: height - 3, y2: height - 3 });
      for (const [time] of past.slice(Math.max(0, one.seen - 120), one.seen)) shape(svg, "line", { class: "axis", x1: X(one.t - time), x2: X(one.t - time), y1: height - 6, y2: height });
      heads.forEach(([, attended], layer) => {
        for (const [index, weight] of attended) {
          const dot = shape(svg, "circle", { cx: X(one.t - eventAt(index)[0]), cy: 8 + 13 * layer, r: 1 + 8 * Math.sqrt(weight), fill: colour(layer), "fill-opacity": 0.75 });
          shape(dot, "title", {}, `${eventAt(index)[1]}: ${weight}`);
        }
      });
    }

    function drawBehind(one) {
      const event = one.events.find((row) => row[0] === state.chosen);
      behind.replaceChildren();
      if (!event || !layers) return; // what a cell remembers is not of single events
      behind.append(make("h3", {}, "Looking back for ", names[event[0]], " ", make("span", { class: "fade" }, "long ago on the left, just now on the right")));
      if (!event[2].length) { behind.append(make("p", { class: "told" }, "No fact in its proofs was added by an event: nothing is looked back at.")); return; }
      const list = make("ul", { class: "heads" });
      behind.append(list);
      for (const [fact, rule, effect, heads] of event[2]) {
        const item = make("li", {}, make("div", { class: "headline" }, make("b", {}, names[fact]), make("em", {}, effect === null ? "" : `× ${told(Math.exp(clamp(effect, -50, 50)), 3)}`)), make("code", {}, names[rule]));
        list.append(item);
        lane(item, one, heads);
        heads.forEach(([kept, attended, rest], layer) => {
          const others = 1 - kept - attended.reduce((sum, [, weight]) => sum + weight, 0);
          const words = attended.map(([index, weight]) => `${percent(weight)} ${eventAt(index)[1]}, ${told(one.t - eventAt(index)[0], 3)} ago`);
          if (rest) words.push(`${percent(Math.max(0, others))} ${rest} more`);
          words.push(`${percent(kept)} nothing`);
          item.append(make("p", { class: "told" }, layers > 1 ? `layer ${layer + 1}: ` : "", words.join(" · ")));
        });
      }
    }

    const functor = (text) => (text.endsWith(")") && text.indexOf("(") > 0 ? text.slice(0, text.indexOf("(")) : "");
    function chips(rows) {
      const groups = new Map();
      for (const [fact, kind] of rows) {
        const text = names[fact], head = functor(text), key = head || "by themselves";
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(make("span", { class: `fact ${kind}`, title: kind === "new" ? "new" : kind === "gone" ? "just removed" : null }, `${kind === "new" ? "+ " : kind === "gone" ? "− " : ""}${text}`));
      }
      const list = make("dl", { class: "facts" });
      for (const [key, items] of groups) list.append(make("dt", {}, key), make("dd", {}, ...items.slice(0, 60), items.length > 60 ? make("span", { class: "fade" }, `and ${items.length - 60} more`) : null));
      return list;
    }
    const standing = make("details", {}, make("summary", {}, `${always.length} facts that are true all the time`));
    if (always.length) standing.append(chips(always.map((fact) => [fact, ""])));
    function drawTruth() {
      const at = state.at, rows = [];
      for (const [fact, from, to] of facts) {
        if (from <= at && at < to) rows.push([fact, at > 0 && from === at ? "new" : ""]);
        else if (to === at && at > 0) rows.push([fact, "gone"]);
      }
      const true_ = rows.filter((row) => row[1] !== "gone").length;
      const left = data.facts_left_out ? `; ${data.facts_left_out} later ones are left out` : "";
      truth.replaceChildren(make("h3", {}, "What is true ", make("span", { class: "fade" }, `${true_ + always.length} facts${left}`)), rows.length ? chips(rows) : make("p", { class: "told" }, "Nothing but what is always true."), always.length ? standing : "");
    }

    function draw() {
      const one = frames[state.at];
      if (state.chosen === null && one.events.length) state.chosen = one.happened.find((name) => one.events.some((event) => event[0] === name)) ?? one.events[0][0];
      drawNow(one); drawPossible(one); drawBehind(one); drawTruth();
    }
    return draw;
  };

  // --- Draw everything, and again when the width changes ------------------------------------------------------------
  const own = new Set(["course", "moments", "frequent", "scatter", "futures"]); // they keep what they made, or clear it themselves
  const redraws = [];
  for (const place of document.querySelectorAll("[data-chart]")) {
    const name = place.dataset.chart;
    if (!(name in charts) || !(name in NUMBERS)) continue;
    const draw = charts[name](place, NUMBERS[name]);
    const again = own.has(name) ? draw : () => { place.replaceChildren(); draw(); };
    again();
    redraws.push(again);
  }
  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar comes and goes
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => { hide(); for (const redraw of redraws) redraw(); }, 120);
  });
  document.documentElement.dataset.drawn = String(redraws.length);
})();
