/* ---- cases ---- */
/* What a case says in any of its texts, made when it is first searched, or before that while nobody waits. */
const texts = new Array(rows.length);
function collect(value, found) {
  if (typeof value === "string") found.push(value);
  else if (Array.isArray(value)) for (const item of value) collect(item, found);
  else if (value && typeof value === "object")
    for (const key in value) {
      found.push(key);
      collect(value[key], found);
    }
  else if (value !== null) found.push(String(value));
}
function textOf(at) {
  if (texts[at] === undefined) {
    const row = rows[at],
      detail = details[at],
      found = [row.case, row.where, plain(row.note)];
    if (detail) {
      for (const turn of [...detail.expected, ...detail.baseline]) collect(turn, found);
      for (const attempt of [...detail.attempts, ...detail.control])
        collect([attempt.error, attempt.turns, attempt.scores], found);
    }
    texts[at] = found.join(" ").toLowerCase();
  }
  return texts[at];
}
function prepareSearch() {
  let at = 0;
  const some = idle => {
    while (at < rows.length && idle.timeRemaining() > 4) textOf(at++);
    if (at < rows.length) requestIdleCallback(some);
  };
  if (window.requestIdleCallback) requestIdleCallback(some);
}
const KEYS = {
  status: row => frame.groups.findIndex(group => group.key === row.group),
  case: row => row.case.toLowerCase(),
  main: row => (row.main && row.main[1] ? (row.main[0] ?? 0) / row.main[1] : -1),
  tokens: row => row.tokens ?? -1,
  seconds: row => row.seconds ?? -1,
};
const sortKey = sort =>
  KEYS[sort] ||
  (row => {
    const cell = row.scores[frame.columns.indexOf(sort)];
    return cell && cell[0] !== null ? cell[0] : -1;
  });
function chosen(query) {
  const group = query.get("group"),
    text = (query.get("q") || "").toLowerCase();
  let found = rows.map((_, at) => at);
  if (query.get("cause")) found = found.filter(at => String(rows[at].cause) === query.get("cause"));
  if (group) found = found.filter(at => rows[at].group === group);
  if (text) {
    found = found.filter(at => textOf(at).includes(text));
  }
  const sort = query.get("sort");
  if (sort) {
    const key = sortKey(sort),
      sign = query.get("down") ? -1 : 1,
      keys = new Map(found.map(at => [at, key(rows[at])]));
    found.sort((a, b) => (keys.get(a) < keys.get(b) ? -sign : keys.get(a) > keys.get(b) ? sign : a - b));
  }
  return found;
}
/* Columns beside status and name: key, label, style, what stands in a row. */
const COLUMNS = [
  ...frame.columns.map((column, at) => [
    column,
    () => name(column),
    "n wide",
    row => row.scores[at]?.[1] ?? "",
    row => row.scores[at]?.[2] ?? "",
  ]),
  ["runs", () => "Runs here", "", row => pips(row.runs)],
  [
    "main",
    () => (past.length > 1 ? `Main, ${plural(past.length, "run")}` : "Main"),
    "narrow",
    row => (row.past.length > 1 ? strip(row.past) : row.main ? ratio(row.main) : ""),
  ],
  ["tokens", () => "Tokens", "n wide", row => (row.tokens === null ? "" : number(row.tokens))],
  ["seconds", () => "Seconds", "n wide", row => (row.seconds === null ? "" : row.seconds.toFixed(1))],
];
const ratio = ([passed, runs]) => (passed === null ? plural(runs, "run") : `${passed}/${runs}`);
const LISTED = ["group", "cause", "q", "sort", "down"];
const listQuery = query => Object.fromEntries(LISTED.map(key => [key, query.get(key)]));
const hiddenColumns = query => new Set((query.get("hide") || "").split(",").filter(Boolean).map(decodeURIComponent));
function caseRow(row, columns, kept) {
  return el(
    "tr",
    null,
    el("td", null, status(row.group)),
    el(
      "th",
      { scope: "row" },
      el("a", { href: caseLink(row, kept) }, name(row.case)),
      row.where && el("small", null, row.where),
      row.note.length > 0 && el("small", null, prose(row.note)),
    ),
    columns.map(([, , style, cell, tone]) => el("td", { class: `${style} ${tone ? tone(row) : ""}` }, cell(row))),
  );
}
function cases() {
  const body = el("tbody"),
    heads = el("tr"),
    count = el("p", { class: "dim", role: "status" }),
    more = el("button", { type: "button", class: "chip" });
  const query = () => address().query;
  let shown = [],
    drawn = 0;
  const draw = upTo => {
    const kept = listQuery(query()),
      absent = hiddenColumns(query()),
      columns = COLUMNS.filter(([key]) => !absent.has(key));
    for (; drawn < Math.min(upTo, shown.length); drawn++) body.append(caseRow(rows[shown[drawn]], columns, kept));
    more.hidden = drawn >= shown.length;
    more.textContent = `Show ${number(Math.min(PAGE, shown.length - drawn))} more`;
  };
  const refresh = () => {
    const now = query(),
      absent = hiddenColumns(now),
      cause = frame.causes[now.get("cause")];
    shown = chosen(now);
    drawn = 0;
    body.replaceChildren();
    draw(PAGE);
    count.replaceChildren(
      `${number(shown.length)} of ${plural(rows.length, "case")}`,
      ...(cause ? [" with one cause: ", ...prose(cause.text)] : []),
    );
    for (const button of chips.querySelectorAll("button"))
      button.setAttribute(
        "aria-pressed",
        String(!now.get("cause") && (now.get("group") || "") === button.dataset.group),
      );
    redraw(
      heads,
      [["status", () => "Status", ""], ["case", () => "Case", ""], ...COLUMNS]
        .filter(([key]) => !absent.has(key))
        .map(([key, label, style]) => head(key, label(), style)),
    );
  };
  const set = values => {
    change(values);
    refresh();
  };
  const head = (key, label, style) => {
    const down = query().get("down"),
      on = query().get("sort") === key;
    if (key === "runs") return el("th", { scope: "col", class: style }, label);
    return el(
      "th",
      { scope: "col", class: style, "aria-sort": on ? (down ? "descending" : "ascending") : "none" },
      el(
        "button",
        { type: "button", "data-key": key, onclick: () => set({ sort: key, down: on && !down ? "1" : "" }) },
        label,
      ),
    );
  };
  more.addEventListener("click", () => draw(drawn + PAGE));
  const search = el("input", {
    type: "search",
    id: "search",
    placeholder: "Search names, prompts, answers, calls",
    "aria-label": "Search names, prompts, answers, calls and judges' words",
    value: query().get("q") || "",
  });
  search.addEventListener("input", () => set({ q: search.value }));
  const filter = (key, label, total) =>
    el(
      "button",
      { type: "button", class: "chip", "data-group": key, onclick: () => set({ group: key, cause: "" }) },
      label,
      " ",
      el("span", { class: "dim" }, number(total)),
    );
  const chips = el(
    "div",
    { class: "chips", role: "group", "aria-label": "Filter by status" },
    filter("", "All", rows.length),
    frame.groups.map(group => filter(group.key, [mark(group.tone), " ", group.label], group.n)),
  );
  refresh();
  return el(
    "div",
    { class: "stack" },
    el("h1", { class: "hidden" }, "Cases"),
    el("div", { class: "filters" }, search, columnPicker(set), chips),
    count,
    el(
      "div",
      { class: "card scroll" },
      el("table", { class: "cases" }, el("caption", { class: "hidden" }, "Cases"), el("thead", null, heads), body),
    ),
    more,
  );
}
function columnPicker(set) {
  const absent = hiddenColumns(address().query);
  const box = ([key, label]) => {
    const input = el("input", { type: "checkbox", checked: !absent.has(key) });
    input.addEventListener("change", () => {
      if (input.checked) absent.delete(key);
      else absent.add(key);
      set({ hide: [...absent].map(encodeURIComponent).join(",") });
    });
    return el("label", null, input, " ", label());
  };
  return el(
    "details",
    { class: "columns" },
    el("summary", { class: "chip" }, "Columns"),
    el("div", { class: "card" }, COLUMNS.map(box)),
  );
}
