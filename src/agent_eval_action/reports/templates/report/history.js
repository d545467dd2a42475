/* ---- history ---- */
const shortOf = run => run.commit.slice(0, 7) || run.at.slice(0, 10);
const KINDS = {
  model: "model",
  adk: "google-adk",
  judge: "judge",
  criterion: "criterion",
  cases: "cases edited",
  accepted: "accepted",
};
function historyView() {
  if (!past.length)
    return el(
      "div",
      { class: "stack" },
      el("h1", null, "History"),
      el("p", { class: "dim" }, "Main has no recorded runs yet."),
    );
  const ran = rows.filter(row => row.runs !== "");
  const share = ran.length ? ran.filter(row => here(row) === "p").length / ran.length : null;
  const percent = value => `${(value * 100).toFixed(0)} %`,
    whole = value => number(Math.round(value));
  const tile = (label, key, now, show) => [label, past.map(run => run[key]), now ?? null, show];
  const tiles = [
    tile("Cases that pass", "share", share, percent),
    tile("Tokens per attempt", "tokens", frame.cost.tokens, whole),
    tile("USD of the run", "usd", frame.cost.usd, value => `$${value.toFixed(value < 1 ? 3 : 2)}`),
    tile(
      "Seconds of an attempt, p95",
      "seconds",
      frame.cost.seconds,
      value => `${value.toFixed(value < 10 ? 2 : 1)} s`,
    ),
    ...frame.criteria
      .filter(row => row.unit !== "score")
      .map(row => [row.name, past.map(run => run.means[row.name] ?? null), row.value, whole]),
  ].filter(([, values, now]) => now !== null || values.some(value => value !== null));
  const scored = frame.criteria.filter(row => row.unit === "score");
  const events = past.filter(run => run.events.length > 0);
  return el(
    "div",
    { class: "stack" },
    el("h1", null, "History"),
    scored.length > 0 && past.length > 1 && criteriaOverTime(scored),
    el("section", { class: "card" }, el("dl", { class: "tiles" }, tiles.map(historyTile))),
    events.length > 0 &&
      card(
        "What changed on main",
        "the dashed lines above, newest first",
        table(
          "What changed on main",
          ["Commit", ["When", "wide"], "What"],
          [...events].reverse().map(run =>
            el(
              "tr",
              null,
              el("th", { scope: "row" }, el("code", null, shortOf(run))),
              el("td", { class: "wide" }, run.at.slice(0, 16).replace("T", " ")),
              el(
                "td",
                null,
                run.events.map(([, text]) => el("div", null, prose(text))),
              ),
            ),
          ),
        ),
      ),
    casesOverTime(),
  );
}
function historyTile([label, values, now, show]) {
  const known = values.filter(value => value !== null).sort((a, b) => a - b);
  const main = known.length ? `main ${show(known[Math.floor(known.length / 2)])}` : "";
  return el(
    "div",
    null,
    el("dt", { class: "dim" }, label),
    el("dd", null, now === null ? "–" : show(now), " ", el("small", { class: "beside" }, main)),
    el("dd", null, chart(label, values, now, "", 220, 56, show)),
  );
}
/** A chip that switches a choice of the address on and off. */
function toggle(name, label, isOn) {
  const id = `toggle-${name}`;
  const onclick = () => {
    change({ [name]: isOn ? "" : "1" });
    render();
    document.getElementById(id).focus();
  };
  return el("button", { type: "button", class: "chip", id, "aria-pressed": String(isOn), onclick }, label);
}
function criteriaOverTime(scored) {
  const asTable = address().query.get("table") === "1";
  const button = toggle("table", "As a table", asTable);
  return el(
    "section",
    { class: "card" },
    el(
      "header",
      null,
      el("h2", null, `Criteria over main's last ${plural(past.length, "run")}, and this change`),
      el("span", { class: "space" }),
      button,
    ),
    asTable ? criteriaTable(scored) : el("div", { class: "scroll", tabindex: 0 }, criteriaChart(scored)),
  );
}
const criteriaTable = scored =>
  table(
    "Means over main's runs",
    ["Run", "When", ...scored.map(row => [name(row.name), "n"])],
    [
      el(
        "tr",
        null,
        el("th", { scope: "row" }, "this change"),
        el("td", null),
        scored.map(row => el("td", { class: `n ${row.tone}` }, row.here)),
      ),
      ...[...past].reverse().map(run =>
        el(
          "tr",
          null,
          el("th", { scope: "row" }, el("code", null, shortOf(run))),
          el("td", null, run.at.slice(0, 10)),
          scored.map(row => el("td", { class: "n" }, run.means[row.name]?.toFixed(2) ?? "")),
        ),
      ),
    ],
  );
function criteriaChart(scored) {
  const width = 1160,
    height = 270,
    left = 44,
    right = 300,
    top = 44,
    bottom = 30;
  const values = scored.flatMap(row => [...past.map(run => run.means[row.name]), row.value]).filter(Number.isFinite);
  const low = Math.min(1, ...values),
    high = Math.max(0, ...values),
    span = high - low || 1;
  const x = at => left + (at * (width - left - right)) / past.length,
    y = value => top + (1 - (value - low) / span) * (height - top - bottom);
  const text = (at, where, style, ...children) => svg("text", { x: at, y: where, class: style }, ...children);
  const named = scored.filter(row => Number.isFinite(row.value)).map(row => ({ row, at: y(row.value) }));
  named.sort((a, b) => a.at - b.at);
  for (let at = 1; at < named.length; at++) named[at].at = Math.max(named[at].at, named[at - 1].at + 17);
  const colour = row => `c${(scored.indexOf(row) % 6) + 1}`;
  const ends = [0, -40];
  const event = (run, at) => {
    const row = ends.findIndex(end => x(at) > end),
      kinds = [...new Set(run.events.map(([kind]) => KINDS[kind]))].join(", ");
    if (row >= 0) ends[row] = x(at) + 10 + kinds.length * 6.5;
    return [
      svg(
        "line",
        { x1: x(at), x2: x(at), y1: 18, y2: height - bottom, class: "event" },
        svg("title", null, `${shortOf(run)}: ${run.events.map(([, what]) => plain(what)).join("; ")}`),
      ),
      row >= 0 && text(x(at) + 4, 13 + row * 14, "", kinds),
    ];
  };
  const line = row => {
    const points = past.map((run, at) => [x(at), run.means[row.name]]).filter(([, value]) => Number.isFinite(value));
    const last = points.at(-1);
    return [
      svg("polyline", {
        points: points.map(([at, value]) => `${at},${y(value)}`).join(" "),
        class: `series ${colour(row)}`,
      }),
      last &&
        Number.isFinite(row.value) &&
        svg("line", {
          x1: last[0],
          y1: y(last[1]),
          x2: x(past.length),
          y2: y(row.value),
          class: `series next ${colour(row)}`,
        }),
      Number.isFinite(row.value) &&
        svg("circle", { cx: x(past.length), cy: y(row.value), r: 4.5, class: `point ${colour(row)}` }),
    ];
  };
  const spoken = scored.map(
    row => `${row.name}: ${past.map(run => run.means[row.name]?.toFixed(2) ?? "none").join(", ")}, here ${row.here}`,
  );
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "over-time", role: "img", "aria-label": spoken.join("; ") },
    [low, (low + high) / 2, high].map(value => [
      svg("line", { x1: left, x2: x(past.length), y1: y(value), y2: y(value), class: "grid" }),
      text(left - 8, y(value) + 4, "end", value.toFixed(2)),
    ]),
    past.map((run, at) => run.events.length > 0 && event(run, at)),
    svg("rect", {
      x: x(past.length) - 12,
      width: 24,
      y: top - 8,
      height: height - top - bottom + 16,
      rx: 4,
      class: `now-band ${frame.outcome}`,
    }),
    scored.map(line),
    named.map(({ row, at }) =>
      text(
        x(past.length) + 18,
        at + 4,
        `label ${colour(row)}`,
        `${row.value.toFixed(2)}  ${row.name.length > 34 ? `${row.name.slice(0, 33)}…` : row.name}`,
      ),
    ),
    text(left, height - 6, "", `${shortOf(past[0])} · ${past[0].at.slice(0, 10)}`),
    past.length > 1 && text(x(past.length - 1), height - 6, "end", `main ${shortOf(past.at(-1))}`),
    text(x(past.length), height - 6, "middle label", "here"),
  );
}
function casesOverTime() {
  const all = address().query.get("all") === "1";
  const ever = rows.filter(row => /[fm]/.test(row.past) || !"p-".includes(here(row)));
  const shown = all ? rows.slice(0, 1000) : ever.slice(0, PAGE);
  const everyCase = toggle("all", "All cases", all);
  return el(
    "section",
    { class: "card" },
    el(
      "header",
      null,
      el("h2", null, "Case by case"),
      el(
        "span",
        { class: "dim" },
        all
          ? `${number(shown.length)} of ${plural(rows.length, "case")}`
          : `${number(shown.length)} of ${plural(rows.length, "case")}: those that ever failed`,
      ),
      el("span", { class: "space" }),
      ever.length < rows.length && everyCase,
    ),
    el(
      "p",
      { class: "legend dim pad" },
      ["p", "f", "m", "n", "e"].map(key => [
        el("i", { class: `cell o${key}` }),
        { p: "passed", f: "failed", m: "some runs failed", n: "not run", e: "not measured" }[key],
        " ",
      ]),
    ),
    table(
      "Cases over main's runs",
      ["Case", "Main's runs, this change last"],
      shown.map(row => {
        const now = here(row) === "-" ? "n" : here(row);
        return el(
          "tr",
          null,
          el(
            "th",
            { scope: "row" },
            el("a", { href: caseLink(row, { tab: "past" }) }, name(row.case)),
            failingSince(row.past) && el("small", { class: "bad" }, failingSince(row.past)),
          ),
          el(
            "td",
            { class: "long" },
            strip(row.past),
            el(
              "span",
              { class: "strip now", role: "img", "aria-label": `here: ${OUTCOMES[here(row)] || "not measured"}` },
              el("i", { class: `o${now}`, title: `here: ${OUTCOMES[here(row)] || "not measured"}` }),
            ),
          ),
        );
      }),
      "over-time-cases",
    ),
  );
}
