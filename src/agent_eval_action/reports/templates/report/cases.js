/* ---- cases ---- */
let texts = null;
const words = value =>
  typeof value === "string"
    ? value
    : value && typeof value === "object"
      ? Object.entries(value).flat().map(words).join(" ")
      : String(value ?? "");
function searchable() {
  /* names first; prompts, answers, calls and what judges said follow */
  texts ||= rows.map((row, at) =>
    `${row.case} ${row.where} ${plain(row.note)} ${details[at] ? words({ ...details[at], criteria: 0 }) : ""}`.toLowerCase(),
  );
  return texts;
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
    const all = searchable();
    found = found.filter(at => all[at].includes(text));
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
function cases() {
  const body = el("tbody"),
    count = el("p", { class: "dim", role: "status" }),
    more = el("button", { type: "button", class: "chip" });
  const query = () => address().query;
  let shown = [],
    drawn = 0;
  const draw = upTo => {
    for (; drawn < Math.min(upTo, shown.length); drawn++) body.append(caseRow(rows[shown[drawn]]));
    more.hidden = drawn >= shown.length;
    more.textContent = `Show ${number(Math.min(PAGE, shown.length - drawn))} more`;
  };
  const refresh = () => {
    shown = chosen(query());
    drawn = 0;
    body.replaceChildren();
    draw(PAGE);
    const cause = frame.causes[query().get("cause")];
    count.replaceChildren(
      `${number(shown.length)} of ${plural(rows.length, "case")}`,
      ...(cause ? [" with one cause: ", ...prose(cause.text)] : []),
    );
    for (const chip of chips.querySelectorAll("button"))
      chip.setAttribute(
        "aria-pressed",
        String(!query().get("cause") && (query().get("group") || "") === chip.dataset.group),
      );
    for (const head of heads.children) {
      const on = query().get("sort") === head.dataset.sort;
      head.setAttribute("aria-sort", on ? (query().get("down") ? "descending" : "ascending") : "none");
    }
  };
  more.addEventListener("click", () => draw(drawn + PAGE));
  const search = el("input", {
    type: "search",
    id: "search",
    placeholder: "Search names, prompts, answers, calls",
    "aria-label": "Search names, prompts, answers, calls and judges' words",
    value: query().get("q") || "",
  });
  search.addEventListener("input", () => {
    change({ q: search.value });
    refresh();
  });
  const chip = (key, label, total) =>
    el(
      "button",
      {
        type: "button",
        class: "chip",
        "data-group": key,
        onclick: () => {
          change({ group: key, cause: "" });
          refresh();
        },
      },
      label,
      " ",
      el("span", { class: "dim" }, number(total)),
    );
  const chips = el(
    "div",
    { class: "chips", role: "group", "aria-label": "Filter by status" },
    chip("", "All", rows.length),
    frame.groups.map(group => chip(group.key, [mark(group.tone), " ", group.label], group.n)),
  );
  const head = (sort, label, style) =>
    el(
      "th",
      { scope: "col", class: style, "data-sort": sort },
      el(
        "button",
        {
          type: "button",
          onclick: () => {
            const same = query().get("sort") === sort;
            change({ sort, down: same && !query().get("down") ? "1" : "" });
            refresh();
          },
        },
        label,
      ),
    );
  const heads = el(
    "tr",
    null,
    head("status", "Status"),
    head("case", "Case"),
    frame.columns.map(column => head(column, name(column), "n wide")),
    el("th", { scope: "col" }, "Runs here"),
    head("main", "Main", "n"),
    head("tokens", "Tokens", "n wide"),
    head("seconds", "Seconds", "n wide"),
  );
  refresh();
  return el(
    "div",
    { class: "stack" },
    el("h1", { class: "hidden" }, "Cases"),
    el("div", { class: "filters" }, search, chips),
    count,
    el(
      "div",
      { class: "card scroll" },
      el("table", { class: "cases" }, el("caption", { class: "hidden" }, "Cases"), el("thead", null, heads), body),
    ),
    more,
  );
}
const caseRow = row =>
  el(
    "tr",
    null,
    el("td", null, status(row.group)),
    el(
      "th",
      { scope: "row" },
      el("a", { href: caseLink(row) }, name(row.case)),
      row.where && el("small", null, row.where),
      row.note.length > 0 && el("small", null, prose(row.note)),
    ),
    row.scores.map(cell => el("td", { class: `n wide ${cell ? cell[2] : ""}` }, cell ? cell[1] : "")),
    el("td", null, pips(row.runs)),
    el("td", { class: "n" }, row.past.length > 1 ? strip(row.past) : row.main ? ratio(row.main) : ""),
    el("td", { class: "n wide" }, row.tokens === null ? "" : number(row.tokens)),
    el("td", { class: "n wide" }, row.seconds === null ? "" : row.seconds.toFixed(1)),
  );
const ratio = ([passed, runs]) => (passed === null ? plural(runs, "run") : `${passed}/${runs}`);
