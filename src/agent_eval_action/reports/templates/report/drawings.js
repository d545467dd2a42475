/* ---- drawings ---- */
function whisker(row) {
  if (row.delta === null || row.unit !== "score") return "";
  const ends = row.interval || [row.delta, row.delta];
  const reach = Math.max(0.05, ...ends.map(Math.abs), Math.abs(row.delta), row.allowed || 0) * 1.1;
  const x = value => 64 + (value / reach) * 60;
  const allowed = row.allowed;
  return svg(
    "svg",
    {
      width: 128,
      height: 24,
      viewBox: "0 0 128 24",
      role: "img",
      "aria-label": `change ${row.change}, 95 % interval ${ends.map(end => end.toFixed(2)).join(" to ")}`,
    },
    allowed && svg("rect", { x: x(-allowed), y: 3, width: x(0) - x(-allowed), height: 18, class: "band" }),
    svg("line", { x1: 64, x2: 64, y1: 1, y2: 23, class: "axis" }),
    svg("line", { x1: x(ends[0]), x2: x(ends[1]), y1: 12, y2: 12, class: `reach ${row.tone}` }),
    svg("circle", { cx: x(row.delta), cy: 12, r: 4, class: `dot ${row.tone}` }),
  );
}
function distribution(row) {
  const high = Math.max(1, ...row.then, ...row.now);
  if (!row.now.some(Boolean)) return "";
  const size = count => (count ? Math.max(2, Math.sqrt(count / high) * 15) : 0);
  const bars = (counts, up, kind) =>
    counts.map((count, at) =>
      svg("rect", { x: at * 11, width: 9, y: up ? 16 - size(count) : 18, height: size(count), class: kind }),
    );
  return svg(
    "svg",
    {
      width: 110,
      height: 34,
      viewBox: "0 0 110 34",
      role: "img",
      "aria-label": `cases by score, in tenths: main ${row.then.join(" ")}, here ${row.now.join(" ")}`,
    },
    bars(row.then, true, "then"),
    svg("line", { x1: 0, x2: 110, y1: 17, y2: 17, class: "axis" }),
    bars(row.now, false, "now"),
  );
}

/* ---- main's past ---- */
const OUTCOMES = { p: "passed", f: "failed", m: "mixed", "-": "not run" };
const here = row =>
  row.runs === "" ? "-" : /^e+$/.test(row.runs) ? "e" : /x/.test(row.runs) ? (/p/.test(row.runs) ? "m" : "f") : "p";
const strip = text =>
  el(
    "span",
    {
      class: "strip",
      role: "img",
      "aria-label": `main's last ${plural(text.length, "run")}: ${Object.entries(OUTCOMES)
        .map(([key, word]) => [[...text].filter(one => one === key).length, word])
        .filter(([count]) => count)
        .map(([count, word]) => `${count} ${word}`)
        .join(", ")}`,
    },
    [...text].map((one, at) =>
      el("i", {
        class: `o${one === "-" ? "n" : one}`,
        title: `${past[at] ? past[at].commit.slice(0, 7) : ""} ${OUTCOMES[one]}`,
      }),
    ),
  );
function failingSince(text) {
  const last = text.replace(/-+$/, "");
  if (!last.endsWith("f")) return "";
  const first = past[last.search(/[f-]*$/)];
  return first ? `failing on main since ${first.commit.slice(0, 7) || first.at}` : "";
}
const decimals = value => value.toFixed(2);
function chart(label, values, now, tone, width, height, show = decimals) {
  const known = [...values, now].filter(value => value !== null && value !== undefined);
  if (values.length < 2 || !known.length) return "";
  const low = Math.min(...known),
    span = Math.max(...known) - low || Math.abs(low) || 1;
  const x = at => 4 + (at * (width - 12)) / values.length,
    y = value => 4 + (1 - (value - low) / span) * (height - 8);
  const points = values.map((value, at) => [x(at), value]).filter(([, value]) => value !== null && value !== undefined);
  return svg(
    "svg",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      class: "chart",
      "aria-label": `${label}: main's last ${plural(points.length, "run")} ${points.map(([, value]) => show(value)).join(", ")}${now === null ? "" : `; here ${show(now)}`}`,
    },
    past.map(
      (run, at) =>
        run.events.length > 0 &&
        svg(
          "line",
          { x1: x(at), x2: x(at), y1: 0, y2: height, class: "event" },
          svg("title", null, run.events.map(([, text]) => plain(text)).join("; ")),
        ),
    ),
    svg("polyline", { points: points.map(([at, value]) => `${at},${y(value)}`).join(" "), class: "line" }),
    now !== null &&
      points.length > 0 &&
      svg("line", {
        x1: points.at(-1)[0],
        y1: y(points.at(-1)[1]),
        x2: width - 6,
        y2: y(now),
        class: `line next ${tone}`,
      }),
    now !== null && svg("circle", { cx: width - 6, cy: y(now), r: 3.5, class: `dot ${tone}` }),
  );
}
