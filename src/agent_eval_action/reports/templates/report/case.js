/* ---- one case ---- */
const TABS = [
  [COMPARE, "Compare"],
  ["judge", "Scores and judges"],
  ["runs", "Runs"],
  ["time", "Time and tokens"],
  ["past", "History"],
  ["definition", "Definition"],
];
function oneCase(parts) {
  const at = rows.findIndex(row => row.agent === parts[0] && row.set === parts[1] && row.id === parts[2]);
  if (at < 0)
    return el(
      "div",
      { class: "stack" },
      el("h1", null, "No such case"),
      "This report has no such case. ",
      el("a", { href: "#/cases" }, "All cases"),
    );
  const row = rows[at],
    detail = details[at];
  const list = chosen(address().query),
    place = list.indexOf(at);
  const kept = listQuery(address().query);
  const step = (by, label, key) => {
    const other = rows[list[place + by]];
    return el(
      "a",
      {
        class: "button",
        "data-step": by,
        href: other ? caseLink(other, kept) : null,
        "aria-disabled": other ? null : "true",
      },
      label,
      " ",
      el("kbd", null, key),
    );
  };
  const head = el(
    "header",
    { class: "case-head" },
    el(
      "p",
      { class: "dim crumb" },
      el("a", { href: link(["cases"], kept) }, "Cases"),
      ` › ${row.agent} › ${row.set}`,
      el("span", { class: "space" }),
      step(-1, "Previous", "k"),
      step(1, "Next", "j"),
    ),
    el("h1", null, name(row.case), " ", status(row.group)),
    row.note.length > 0 && el("p", { class: "why" }, prose(row.note)),
    el(
      "div",
      { class: "actions" },
      row.select && command(`agent-eval run ${quoted(row.select)}`, "the command"),
      ["regressed", "worse", "needs_runs"].includes(row.group) &&
        copy(() => acceptCommand(row), "the command that accepts this change", "Accept command"),
      copy(() => location.href, "a link to this view", "Link"),
      copy(() => JSON.stringify({ ...row, ...detail }, null, 1), "this case as JSON", "JSON"),
    ),
  );
  if (!detail)
    return el(
      "div",
      { class: "split" },
      rail(list, at, kept),
      el(
        "article",
        null,
        head,
        el("p", { class: "card pad" }, "Its details did not fit into this page; they are in results.json."),
      ),
    );
  const panel = el("div", { role: "tabpanel", id: "panel", tabindex: 0 });
  const draw = {
    compare: () => compare(detail),
    judge: () => judged(detail),
    runs: () => runs(detail),
    time: () => time(detail),
    past: () => pastOf(row),
    definition: () => definition(row, detail),
  };
  const choose = (tab, focus) => {
    for (const button of tabs.children) {
      const on = button.dataset.tab === tab;
      button.setAttribute("aria-selected", String(on));
      button.tabIndex = on ? 0 : -1;
      if (on && focus) button.focus();
    }
    panel.setAttribute("aria-labelledby", `tab-${tab}`);
    panel.replaceChildren(draw[tab]());
  };
  const tabs = el(
    "div",
    { role: "tablist", "aria-label": "This case", class: "tabs" },
    TABS.map(([key, label]) =>
      el(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${key}`,
          "aria-controls": "panel",
          "data-tab": key,
          onclick: () => {
            change({ tab: key });
            choose(key);
          },
        },
        label,
      ),
    ),
  );
  tabs.addEventListener("keydown", event => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const now = TABS.findIndex(([key]) => key === event.target.dataset.tab);
    const key = TABS[(now + by + TABS.length) % TABS.length][0];
    change({ tab: key });
    choose(key, true);
  });
  const wanted = address().query.get("tab");
  choose(draw[wanted] ? wanted : COMPARE);
  return el("div", { class: "split" }, rail(list, at, kept), el("article", null, head, scores(detail), tabs, panel));
}
const acceptCommand = row =>
  `agent-eval accept --agent ${quoted(row.agent)} --eval-set ${quoted(row.set)} --reason "…" ${row.case.startsWith("-") ? "-- " : ""}${quoted(row.case)}`;
/* The cases around this one, as they are filtered and sorted. */
const RAIL = 40;
function rail(list, at, kept) {
  const place = Math.max(0, list.indexOf(at)),
    from = Math.max(0, Math.min(place - RAIL / 2, list.length - RAIL)),
    near = list.slice(from, from + RAIL).map(index => rows[index]);
  const items = near.map((row, index) => [
    (index === 0 || row.group !== near[index - 1].group) && el("p", { class: "dim" }, groups.get(row.group).label),
    el(
      "a",
      { href: caseLink(row, kept), "aria-current": row === rows[at] ? "true" : null, title: row.case },
      mark(groups.get(row.group).tone),
      el("code", null, row.case),
      pips(row.runs.slice(0, 4)),
    ),
  ]);
  const rest = list.length - near.length;
  return el(
    "nav",
    { class: "rail", "aria-label": "Cases near this one" },
    items,
    rest > 0 && el("p", null, el("a", { href: link(["cases"], kept) }, `${number(rest)} more`)),
  );
}
/* What became of a pair, whose name stands in the row already. */
const withoutName = ({ why, criterion }) => (Array.isArray(why[0]) && why[0][0] === criterion ? why.slice(1) : why);
function pipOf(attempt, criterion) {
  const score = attempt.scores.find(one => one.criterion === criterion);
  return !score || score.status === "error" ? "e" : score.passed === false ? "x" : "p";
}
function scores(detail) {
  return el(
    "div",
    { class: "card" },
    table(
      "Scores of this case",
      [
        hidden("Verdict"),
        "Criterion",
        ["Main → here", "n"],
        ["Change", "n wide"],
        ["Needs", "wide"],
        ["Runs", "wide"],
        "What happened",
      ],
      detail.pairs.map(pair =>
        el(
          "tr",
          null,
          el("td", { class: pair.tone }, mark(pair.tone), hidden(pair.blocking ? "blocks" : pair.kind)),
          el("th", { scope: "row" }, name(pair.criterion), pair.minimize && " ↓"),
          el(
            "td",
            { class: "n" },
            pair.main ? pair.main[0] : "–",
            " → ",
            el("b", { class: pair.tone }, pair.here ? pair.here[0] : "–"),
          ),
          el("td", { class: "n wide" }, pair.change, pair.interval && el("small", null, pair.interval)),
          el("td", { class: "wide" }, pair.needs),
          el("td", { class: "wide" }, pips(detail.attempts.map(attempt => pipOf(attempt, pair.criterion)).join(""))),
          el(
            "td",
            null,
            pair.blocking && el("b", { class: "bad" }, "blocks "),
            pair.why.length ? prose(withoutName(pair)) : pair.kind,
          ),
        ),
      ),
      "case-scores",
    ),
  );
}

function runs(detail) {
  const columns = [
    ...new Set(
      [...detail.attempts, ...detail.control].flatMap(attempt => attempt.scores.map(score => score.criterion)),
    ),
  ];
  const line = whose => attempt =>
    el(
      "tr",
      null,
      el("th", { scope: "row" }, whose),
      el("td", null, pips(attempt.pip), ` ${attempt.repeat} `, el("span", { class: "dim" }, attempt.purpose)),
      columns.map(column => {
        const score = attempt.scores.find(one => one.criterion === column);
        return el("td", { class: `n ${score && score.passed === false ? "bad" : ""}` }, score ? valueOf(score) : "");
      }),
      el("td", { class: "n" }, attempt.tokens === null ? "" : number(attempt.tokens)),
      el("td", { class: "n" }, attempt.seconds[0] === null ? "" : attempt.seconds[0].toFixed(1)),
      el("td", null, attempt.error),
    );
  const extra = detail.pairs
    .filter(pair => pair.fresh || pair.control)
    .map(pair =>
      el(
        "p",
        null,
        name(pair.criterion),
        `: `,
        pair.fresh && `re-runs ${pair.fresh[0]} over ${plural(pair.fresh[2], "run")}`,
        pair.fresh && pair.control && "; ",
        pair.control && `main's agent, run beside it, ${pair.control[0]} over ${plural(pair.control[2], "run")}`,
      ),
    );
  return el(
    "div",
    { class: "stack" },
    el(
      "div",
      { class: "card" },
      table(
        "Runs of this case",
        [
          "Whose",
          "Run",
          ...columns.map(column => [name(column), "n"]),
          ["Tokens", "n"],
          ["Seconds", "n"],
          hidden("Error"),
        ],
        [...detail.attempts.map(line("this change")), ...detail.control.map(line("main's agent"))],
      ),
    ),
    extra,
    detail.more > 0 && el("p", { class: "dim" }, `${plural(detail.more, "more run")} in results.json`),
  );
}
function definition(row, detail) {
  const turns = detail.expected.map((turn, at) =>
    el(
      "div",
      { class: "judged" },
      el("p", null, el("b", null, `Turn ${at + 1} `), el("span", { class: "text" }, turn.user)),
      turn.calls.map(one => el("p", null, call(one, null, ""))),
      turn.answer && el("blockquote", { class: "text" }, turn.answer),
    ),
  );
  return el(
    "div",
    { class: "stack" },
    card(
      "Expected",
      row.file,
      el(
        "div",
        { class: "pad" },
        turns.length
          ? turns
          : el(
              "p",
              { class: "dim" },
              "The case has no reference: a simulated user talks, or only judges without a reference score it.",
            ),
      ),
    ),
    el(
      "div",
      { class: "card" },
      table(
        "Criteria of this eval set",
        ["Criterion", "Needs", "Set in", "Options"],
        detail.criteria.map(([criterion, needs, source, options]) =>
          el(
            "tr",
            null,
            el("th", { scope: "row" }, name(criterion)),
            el("td", null, needs),
            el("td", null, el("code", null, source)),
            el("td", null, options && el("code", null, options)),
          ),
        ),
      ),
    ),
  );
}

function pastOf(row) {
  if (!row.past) return el("p", { class: "dim" }, "Main has no runs of this case yet.");
  const since = failingSince(row.past);
  return el(
    "div",
    { class: "stack" },
    since && el("p", { class: "bad" }, since),
    el(
      "div",
      { class: "card" },
      table(
        "Main's runs of this case, the newest first",
        ["Commit", ["When", "wide"], "What changed", "Outcome"],
        [...row.past]
          .map((one, at) =>
            el(
              "tr",
              null,
              el("th", { scope: "row" }, el("code", null, past[at].commit.slice(0, 10))),
              el("td", { class: "wide" }, past[at].at.slice(0, 16).replace("T", " ")),
              el(
                "td",
                null,
                past[at].events.map(([, text]) => el("div", null, prose(text))),
              ),
              el("td", { class: one === "f" ? "bad" : "" }, OUTCOMES[one]),
            ),
          )
          .reverse(),
      ),
    ),
  );
}
