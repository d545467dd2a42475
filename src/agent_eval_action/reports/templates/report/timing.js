/* ---- time and tokens: when each call of a run was made ---- */
const SPANS = { model: "model", tool: "tool", wait: "waiting for the model's rate" };
function time(detail) {
  const made = [...detail.attempts, ...detail.control].filter(attempt => attempt.seconds[0] !== null);
  if (!made.length) return el("p", { class: "dim" }, "No times were measured.");
  const timed = allRuns(detail).filter(([, attempt]) => attempt.turns.some(turn => turn.spans));
  return el(
    "div",
    { class: "stack" },
    timed.length > 0
      ? waterfall(detail, timed)
      : el("p", { class: "dim" }, "When each call was made is in attempts.jsonl, which was not beside results.json."),
    sums(detail, made),
  );
}
const took = seconds =>
  seconds < 0.0995 ? `${(seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms` : `${seconds.toFixed(2)} s`;
const spansOf = turn => (turn && turn.spans) || [];
/* The seconds at which each turn begins, one after the other. */
function starts(attempt) {
  let at = 0;
  return attempt.turns.map(turn => {
    const start = at;
    at += turn.seconds || Math.max(0, ...spansOf(turn).map(span => span[2] + span[3]));
    return start;
  });
}
const lasts = attempt => {
  const begin = starts(attempt);
  return attempt.turns.reduce(
    (end, turn, at) =>
      Math.max(end, begin[at] + (turn.seconds || 0), ...spansOf(turn).map(span => begin[at] + span[2] + span[3])),
    0.001,
  );
};
function waterfall(detail, timed) {
  const box = el("div", { class: "card" });
  const draw = () => {
    const wanted = chosenRun(detail),
      [kind, attempt] = timed.find(([, one]) => one === allRuns(detail)[wanted][1]) || timed[0];
    const other = kind === "run" ? (timed.find(([whose]) => whose === "control") || [])[1] : null;
    redraw(
      box,
      el(
        "header",
        null,
        el("h2", null, "Where the time and the tokens went"),
        el("span", { class: "space" }),
        el(
          "span",
          { class: "dim" },
          took(lasts(attempt)),
          attempt.tokens === null ? "" : `, ${number(attempt.tokens)} tokens`,
          other ? ` · main's agent ${took(lasts(other))}` : "",
        ),
      ),
      el("div", { class: "chips pad" }, runChips(detail, timed, attempt, draw)),
      spansTable(attempt, other),
      el(
        "p",
        { class: "legend dim pad" },
        Object.entries(SPANS).map(([key, label]) => [el("i", { class: key }), label, " "]),
        other && [el("i", { class: "other" }), "main's agent, run beside this change"],
      ),
    );
  };
  draw();
  return box;
}
function spansTable(attempt, other) {
  const total = Math.max(lasts(attempt), other ? lasts(other) : 0),
    begin = starts(attempt),
    otherBegin = other ? starts(other) : [];
  const x = seconds => (seconds / total) * 1000;
  const bar = (span, from, theirs, theirFrom) =>
    svg(
      "svg",
      { viewBox: "0 0 1000 20", preserveAspectRatio: "none", "aria-hidden": "true", class: "spans" },
      span && svg("rect", { x: x(from + span[2]), width: Math.max(2, x(span[3])), y: 3, height: 10, class: span[0] }),
      theirs &&
        svg("rect", {
          x: x(theirFrom + theirs[2]),
          width: Math.max(2, x(theirs[3])),
          y: 15,
          height: 3,
          class: "other",
        }),
    );
  const label = span => [span[0] === "wait" ? "wait" : [`${span[0]} `, name(span[1])]];
  const tokens = span => (span[4] === null && span[5] === null ? "" : `${number(span[4])} + ${number(span[5])}`);
  const line = (span, theirs, at) =>
    el(
      "tr",
      null,
      el("th", { scope: "row", class: span ? "span" : "span bad" }, label(span || theirs)),
      el("td", { class: "bar" }, bar(span, begin[at] || 0, theirs, otherBegin[at] || 0)),
      el("td", { class: "n wide" }, span ? tokens(span) : ""),
      el("td", { class: `n ${span ? "" : "bad"}` }, span ? took(span[3]) : "only on main"),
    );
  const body = attempt.turns.flatMap((turn, at) => {
    const theirs = other ? spansOf(other.turns[at]) : [];
    const pairs = align(spansOf(turn), theirs, (a, b) => a[0] === b[0] && a[1] === b[1]);
    return [
      el(
        "tr",
        { class: "turn" },
        el("th", { scope: "row" }, `Turn ${at + 1}`),
        el("td"),
        el("td", { class: "wide" }),
        el(
          "td",
          { class: "n" },
          turn.seconds === undefined || turn.seconds === null ? "" : `${turn.seconds.toFixed(2)} s`,
        ),
      ),
      ...pairs.map(([one, two]) => line(one, two, at)),
    ];
  });
  const ticks = [0, 0.25, 0.5, 0.75, 1].map(part => el("span", null, `${(part * total).toFixed(total < 4 ? 2 : 1)}`));
  return table(
    "Calls of models and tools in the order in which they began",
    [
      "Call",
      [[hidden("When, in seconds"), el("span", { class: "ticks", "aria-hidden": "true" }, ticks)], "bar"],
      ["Tokens in + out", "n wide"],
      ["Took", "n"],
    ],
    body,
    "waterfall",
  );
}
/* every run by how long models, tools and everything else took */
function sums(detail, made) {
  const longest = Math.max(0.001, ...made.map(attempt => attempt.seconds[0]));
  return card(
    "All runs",
    el(
      "span",
      { class: "legend" },
      el("i", { class: "model" }),
      "model ",
      el("i", { class: "tool" }),
      "tools ",
      el("i", { class: "wait" }),
      "everything else",
    ),
    el(
      "dl",
      { class: "bars pad" },
      made.map(attempt => {
        const [total, model, tool] = attempt.seconds.map(value => value || 0);
        const parts = [
          ["model", model],
          ["tool", tool],
          ["wait", Math.max(0, total - model - tool)],
        ];
        let x = 0;
        const label = parts.map(([kind, value]) => `${kind} ${value.toFixed(2)} s`).join(", ");
        return [
          el(
            "dt",
            null,
            detail.attempts.includes(attempt) ? `run ${attempt.repeat}` : `main's agent ${attempt.repeat}`,
          ),
          el(
            "dd",
            null,
            svg(
              "svg",
              { viewBox: "0 0 600 14", preserveAspectRatio: "none", role: "img", "aria-label": label },
              parts.map(([kind, value]) => {
                const width = (value / longest) * 600,
                  bar = svg("rect", { x, y: 2, width, height: 10, class: kind });
                x += width;
                return bar;
              }),
            ),
            el(
              "span",
              { class: "n" },
              `${total.toFixed(2)} s`,
              attempt.tokens === null ? "" : ` · ${number(attempt.tokens)} tokens`,
            ),
          ),
        ];
      }),
    ),
  );
}
