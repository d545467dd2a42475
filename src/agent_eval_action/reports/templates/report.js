"use strict";
(function () {
  /* Every text of the data becomes a text node: nothing here makes markup of a string. */
  const data = JSON.parse(document.getElementById("data").textContent);
  const { frame, rows, details } = data;
  const SVG = "http://www.w3.org/2000/svg";
  /* Names that a page shows alike stay apart in its links. */
  const seen = new Map();
  for (const row of rows) {
    const key = JSON.stringify([row.agent, row.set, row.case]),
      times = (seen.get(key) || 0) + 1;
    seen.set(key, times);
    row.id = times > 1 ? `${row.case}~${times}` : row.case;
  }
  const groups = new Map(frame.groups.map(group => [group.key, group]));
  const COMPARE = "compare",
    PAGE = 100;

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false && child !== "") element.append(child);
    }
    return element;
  }
  const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
  const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
  const hidden = text => el("span", { class: "hidden" }, text);
  const prose = parts => parts.map(part => (Array.isArray(part) ? el("code", null, part[0]) : part));
  const plain = parts => parts.map(part => (Array.isArray(part) ? part[0] : part)).join("");
  /* A name may break after an underscore, so that it fits a telephone. */
  const name = text =>
    el(
      "code",
      null,
      text.split(/(?<=_)/).flatMap((part, at) => (at ? [el("wbr"), part] : [part])),
    );
  const number = value => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
  const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
  const card = (title, aside, ...body) =>
    el(
      "section",
      { class: "card" },
      el("header", null, el("h2", null, title), aside && el("span", { class: "dim" }, aside)),
      body,
    );
  const units = new Map(frame.criteria.map(row => [row.name, row.unit]));
  const valueOf = score =>
    score.score === null
      ? score.status.replace("_", " ")
      : (units.get(score.criterion) || "score") === "score"
        ? score.score.toFixed(2)
        : number(score.score);
  const table = (caption, columns, body, kind) =>
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { class: kind },
        el("caption", { class: "hidden" }, caption),
        el(
          "thead",
          null,
          el(
            "tr",
            null,
            columns.map(column => {
              const [text, style] = Array.isArray(column) ? column : [column, ""];
              return el("th", { scope: "col", class: style }, text);
            }),
          ),
        ),
        el("tbody", null, body),
      ),
    );

  /* ---- marks ---- */
  const MARKS = { bad: "✗", warn: "!", good: "✓", "": "·" };
  const mark = tone => el("span", { class: `mark ${tone}`, "aria-hidden": "true" }, MARKS[tone] || "·");
  const status = key => {
    const group = groups.get(key);
    return el("span", { class: `status ${group.tone}` }, mark(group.tone), " ", group.label);
  };
  const PIPS = { p: "passed", x: "failed", e: "error" };
  function pips(runs) {
    if (!runs) return "";
    const counts = Object.entries(PIPS).map(([key, word]) => [[...runs].filter(run => run === key).length, word]);
    const label = counts
      .filter(([count]) => count)
      .map(([count, word]) => `${count} ${word}`)
      .join(", ");
    return el(
      "span",
      { class: "pips", role: "img", "aria-label": label, title: label },
      [...runs].map(run => el("i", { class: run })),
    );
  }
  function copy(text, label, what) {
    const button = el(
      "button",
      { type: "button", class: "copy", "aria-label": `Copy ${label}`, title: `Copy ${label}` },
      what || "Copy",
    );
    button.addEventListener("click", event => {
      event.stopPropagation();
      copyText(text(), label);
    });
    return button;
  }
  function copyText(text, label) {
    const done = () => say(`Copied ${label}`);
    const fallback = () => {
      const area = el("textarea", { class: "hidden" }, text);
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      done();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, fallback);
    else fallback();
  }
  const command = (text, label) =>
    el(
      "div",
      { class: "command" },
      el("code", { title: text, tabindex: 0 }, text),
      copy(() => text, label),
    );
  function say(text) {
    toast.textContent = text;
    toast.classList.add("on");
    clearTimeout(say.timer);
    say.timer = setTimeout(() => toast.classList.remove("on"), 1500);
  }

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

  /* ---- main's past: oldest run first, this change last ---- */
  const past = frame.history.map(([commit, at, models, means, passed, cases]) => ({
    commit,
    at,
    models,
    means,
    passed,
    cases,
  }));
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
  function chart(label, values, now, tone, width, height) {
    const known = [...values, now].filter(value => value !== null && value !== undefined);
    if (values.length < 2 || !known.length) return "";
    const low = Math.min(...known),
      span = Math.max(...known) - low || Math.abs(low) || 1;
    const x = at => 4 + (at * (width - 12)) / values.length,
      y = value => 4 + (1 - (value - low) / span) * (height - 8);
    const points = values
      .map((value, at) => [x(at), value])
      .filter(([, value]) => value !== null && value !== undefined);
    return svg(
      "svg",
      {
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        class: "chart",
        "aria-label": `${label}: main's last ${plural(points.length, "run")} ${points.map(([, value]) => value.toFixed(2)).join(", ")}${now === null ? "" : `; here ${now.toFixed(2)}`}`,
      },
      past.map(
        (run, at) =>
          at > 0 &&
          run.models.join() !== past[at - 1].models.join() &&
          svg(
            "line",
            { x1: x(at), x2: x(at), y1: 0, y2: height, class: "event" },
            svg("title", null, `model: ${run.models.join(", ")}`),
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

  /* ---- address: #/view/…?key=value ---- */
  function address() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    let parts;
    try {
      parts = path.split("/").map(decodeURIComponent);
    } catch {
      parts = [""];
    }
    return { view: parts[0], parts: parts.slice(1), query: new URLSearchParams(query || "") };
  }
  const link = (path, query) => {
    const text = new URLSearchParams(Object.entries(query || {}).filter(([, value]) => value)).toString();
    return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
  };
  const caseLink = (row, query) => link(["case", row.agent, row.set, row.id], query);
  function change(query) {
    const here = address();
    const merged = { ...Object.fromEntries(here.query), ...query };
    history.replaceState(null, "", link([here.view, ...here.parts], merged));
  }

  /* ---- overview ---- */
  function overview() {
    const worst = rows.filter(row => row.cause !== null);
    const causes = frame.causes.map((cause, at) => ({ ...cause, rows: worst.filter(row => row.cause === at) }));
    return el(
      "div",
      { class: "stack" },
      el(
        "section",
        { class: `card verdict ${frame.outcome}` },
        el(
          "div",
          null,
          el(
            "h1",
            null,
            mark({ fail: "bad", pass: "good", inconclusive: "warn" }[frame.outcome] || ""),
            ` ${frame.label}: `,
            prose(frame.heading),
          ),
          el(
            "p",
            { class: "why" },
            frame.why.map(sentence => [prose(sentence), " "]),
          ),
          causes.length > 0 &&
            el(
              "ul",
              { class: "worst" },
              causes.slice(0, 8).map((cause, at) =>
                el(
                  "li",
                  null,
                  el(
                    "a",
                    { href: cause.n === 1 ? caseLink(cause.rows[0]) : link(["cases"], { cause: String(at) }) },
                    el("b", { class: cause.tone }, plural(cause.n, "case")),
                    " ",
                    prose(cause.text),
                    " ",
                    pips(
                      cause.rows
                        .map(row => row.runs)
                        .join("")
                        .slice(0, 40),
                    ),
                  ),
                ),
              ),
            ),
          causes.length > 8 &&
            el("p", null, el("a", { href: "#/cases" }, `${plural(causes.length - 8, "more cause")}`)),
          el("p", { class: "facts dim" }, frame.facts.join(" · ")),
        ),
        next(),
      ),
      frame.weakenings.length > 0 && notice("This change loosens its own checks", frame.weakenings, "warn"),
      frame.criteria.length > 0 && card("Criteria", "band: the allowed drop · line: 95 % interval", criteria()),
      frame.tiles.length > 0 &&
        card(
          "Cost and speed",
          "",
          el(
            "dl",
            { class: "tiles" },
            frame.tiles.map(([label, value]) =>
              el("div", null, el("dt", { class: "dim" }, label), el("dd", null, value)),
            ),
          ),
        ),
      frame.findings.length + frame.notes.length > 0 && notice("Also", [...frame.findings, ...frame.notes], ""),
    );
  }
  const notice = (title, items, tone) =>
    el(
      "section",
      { class: `card notice ${tone}` },
      el("h2", null, title),
      el(
        "ul",
        null,
        items.map(item => el("li", null, prose(item))),
      ),
    );
  function next() {
    const items = frame.steps
      .filter(([, places, commands]) => places.length + commands.length)
      .map(([text, places, commands]) =>
        el(
          "li",
          null,
          el("p", null, prose([text].flat())),
          places.length > 0 &&
            el(
              "ul",
              null,
              places.map(place => el("li", null, prose(place))),
            ),
          commands.map(line => command(line, "the command")),
        ),
      );
    return (
      items.length + frame.advice.length > 0 &&
      el(
        "div",
        { class: "next" },
        el("h2", null, "What next"),
        frame.advice.length > 0 && el("p", null, prose(frame.advice)),
        el("ol", null, items),
      )
    );
  }
  const quoted = text => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);
  function criteria() {
    const body = frame.criteria.map(row =>
      el(
        "tr",
        null,
        el(
          "td",
          { class: row.tone },
          mark(row.tone || (row.status === "pass" ? "good" : "")),
          hidden(row.status.replace("_", " ")),
        ),
        el("td", { class: `n ${row.tone}` }, row.change),
        el("th", { scope: "row" }, name(row.name), row.minimize && " ↓", el("small", null, row.limits)),
        el("td", { class: "n" }, `${row.main} → `, el("b", { class: row.tone }, row.here)),
        el("td", { class: "wide" }, whisker(row)),
        past.length > 1 &&
          el(
            "td",
            { class: "wide" },
            chart(
              row.name,
              past.map(run => run.means[row.name] ?? null),
              row.value,
              row.tone,
              128,
              32,
            ),
          ),
        el("td", { class: "wide" }, distribution(row)),
        el(
          "td",
          { class: "n" },
          `${row.below} of ${row.pairs}`,
          row.errors > 0 && el("small", { class: "warn" }, plural(row.errors, "error")),
        ),
      ),
    );
    return table(
      "Each criterion on main and in this run",
      [
        hidden("Verdict"),
        ["Change", "n"],
        "Criterion",
        ["Main → here", "n"],
        ["Interval", "wide"],
        ...(past.length > 1 ? [["Main's last runs", "wide"]] : []),
        ["Cases by score", "wide"],
        ["Cases below", "n"],
      ],
      body,
    );
  }

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
    const kept = Object.fromEntries(
      ["group", "cause", "q", "sort", "down"].map(key => [key, address().query.get(key)]),
    );
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
        copy(() => location.href, "a link to this view", "Link"),
        copy(() => JSON.stringify({ ...row, ...detail }, null, 1), "this case as JSON", "JSON"),
      ),
    );
    if (!detail)
      return el(
        "article",
        null,
        head,
        el("p", { class: "card pad" }, "Its details did not fit into this page; they are in results.json."),
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
    return el("article", null, head, scores(detail), tabs, panel);
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
            el(
              "td",
              null,
              pair.blocking && el("b", { class: "bad" }, "blocks "),
              pair.why.length ? prose(pair.why) : pair.kind,
            ),
          ),
        ),
      ),
    );
  }

  /* compare: an alignment by longest common subsequence, of calls by name and of answers by word */
  function align(left, right, same) {
    const table = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
    for (let i = left.length - 1; i >= 0; i--) {
      for (let j = right.length - 1; j >= 0; j--) {
        table[i][j] = same(left[i], right[j]) ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
      }
    }
    const found = [];
    let i = 0,
      j = 0;
    while (i < left.length || j < right.length) {
      if (i < left.length && j < right.length && same(left[i], right[j])) found.push([left[i++], right[j++]]);
      else if (j >= right.length || (i < left.length && table[i + 1][j] >= table[i][j + 1]))
        found.push([left[i++], null]);
      else found.push([null, right[j++]]);
    }
    return found;
  }
  function compare(detail) {
    const query = address().query;
    const sides = [
      ["baseline", "main, usual run"],
      ["expected", "expected"],
    ].filter(([key]) => detail[key].length);
    let left = sides.some(([key]) => key === query.get("left")) ? query.get("left") : sides.length ? sides[0][0] : "";
    const all = [
      ...detail.attempts.map(attempt => ["run", attempt]),
      ...detail.control.map(attempt => ["control", attempt]),
    ];
    if (!all.length) return el("p", { class: "dim" }, "This run did not run the case.");
    const firstBad = Math.max(
      0,
      detail.attempts.findIndex(attempt => attempt.pip !== "p"),
    );
    let right = Math.min(all.length - 1, Math.max(0, (parseInt(query.get("run"), 10) || firstBad + 1) - 1));
    const box = el("div");
    const draw = () => {
      const attempt = all[right][1];
      const chip = (on, label, act) =>
        el(
          "button",
          {
            type: "button",
            class: "chip",
            "aria-pressed": String(on),
            onclick: () => {
              act();
              draw();
            },
          },
          label,
        );
      box.replaceChildren(
        el(
          "div",
          { class: "chips" },
          sides.map(([key, label]) =>
            chip(key === left, label, () => {
              left = key;
              change({ left: key });
            }),
          ),
          el("span", { class: "dim" }, "beside"),
          all.map(([kind, made], at) =>
            chip(
              at === right,
              [kind === "run" ? `run ${made.repeat} ` : `main's agent ${made.repeat} `, pips(made.pip)],
              () => {
                right = at;
                change({ run: String(at + 1) });
              },
            ),
          ),
        ),
        attempt.error &&
          el(
            "div",
            { class: "card pad" },
            el("p", { class: "warn" }, attempt.error),
            attempt.trace && el("pre", { tabindex: 0 }, attempt.trace),
          ),
        sideBySide(left ? detail[left] : [], attempt, left === "expected" ? "expected" : "main"),
        el(
          "p",
          { class: "legend dim" },
          el("mark", { class: "del" }, `only ${left === "expected" ? "expected" : "on main"}`),
          " ",
          el("mark", { class: "ins" }, "only here"),
          " ",
          el("span", { class: "unsupported" }, "not supported"),
          " by what the agent was given",
        ),
      );
    };
    draw();
    return box;
  }
  function sideBySide(before, attempt, word) {
    const count = Math.max(before.length, attempt.turns.length);
    const unsupported = new Map();
    for (const score of attempt.scores)
      for (const turn of score.turns) {
        const bad = turn.sentences.filter(([, label]) => !["supported", "not_applicable"].includes(label));
        if (bad.length) unsupported.set(turn.turn, [...(unsupported.get(turn.turn) || []), ...bad]);
      }
    const turns = Array.from({ length: count }, (_, at) => {
      const old = before[at],
        now = attempt.turns[at];
      const calls = align(old ? old.calls : [], now ? now.calls : [], (a, b) => a[0] === b[0]);
      const [oldAnswer, newAnswer] = answers(old, now, unsupported.get(at) || []);
      return [
        el(
          "div",
          { class: "turn" },
          el("b", null, `Turn ${at + 1}`),
          " ",
          el("span", { class: "text" }, (now || old).user || ""),
        ),
        calls.map(([one, two]) =>
          el(
            "div",
            { class: "pair" },
            el("div", { "data-side": word }, one ? call(one, two, "del") : ""),
            el(
              "div",
              { "data-side": "here" },
              two
                ? call(two, one, "ins")
                : before.length
                  ? el("div", { class: "missing" }, `${one[0]} is not called`)
                  : "",
            ),
          ),
        ),
        el(
          "div",
          { class: "pair" },
          el("div", { "data-side": word }, oldAnswer),
          el("div", { "data-side": "here" }, newAnswer),
        ),
      ];
    });
    return el(
      "div",
      { class: "card compare" },
      el(
        "div",
        { class: "pair head" },
        el("div", null, before.length ? word : "nothing to compare with"),
        el("div", null, `this change, run ${attempt.repeat}`),
      ),
      turns,
    );
  }
  function call([tool, args], other, kind) {
    const theirs = other ? other[1] : null;
    const parts = Object.entries(args).map(([key, value], at) => {
      const text = `${key}=${JSON.stringify(value)}`;
      const same = theirs && JSON.stringify(theirs[key]) === JSON.stringify(value);
      return [at ? ", " : "", theirs && !same ? el("mark", { class: kind }, text) : text];
    });
    return el("code", { class: `call ${other ? "" : kind}` }, el("b", null, tool), "(", parts, ")");
  }
  function answers(old, now, bad) {
    const one = old ? old.answer : "",
      two = now ? now.answer : "";
    const left = one.split(/(\s+)/),
      right = two.split(/(\s+)/);
    const plainTexts = [el("span", { class: "text" }, one), el("span", { class: "text" }, underline(two, bad))];
    if (!one || !two || one === two || left.length * right.length > 400000) return plainTexts;
    const aligned = align(left, right, (a, b) => a === b);
    const shared = aligned.filter(([a, b]) => a !== null && b !== null && a.trim()).length;
    if (shared < 0.2 * Math.max(left.length, right.length)) return plainTexts;
    const side = (index, kind) => {
      const found = [];
      for (const pair of aligned) {
        if (pair[index] === null) continue;
        const changed = pair[1 - index] === null && pair[index].trim() !== "";
        found.push(
          changed ? el("mark", { class: kind }, index ? underline(pair[index], bad) : pair[index]) : pair[index],
        );
      }
      return el("span", { class: "text" }, found);
    };
    const notes = bad.map(([sentence, label, why]) =>
      el("small", { class: "bad" }, `${label.replace("_", " ")}: “${sentence}” ${why}`),
    );
    return [side(0, "del"), el("div", null, side(1, "ins"), notes)];
  }
  function underline(text, bad) {
    const hit = bad
      .map(([sentence]) => [text.indexOf(sentence), sentence.length, sentence])
      .filter(([at]) => at >= 0)
      .sort((a, b) => a[0] - b[0]);
    const found = [];
    let from = 0;
    for (const [at, length] of hit) {
      if (at < from) continue;
      found.push(text.slice(from, at), el("span", { class: "unsupported" }, text.slice(at, at + length)));
      from = at + length;
    }
    return [...found, text.slice(from)];
  }

  function votes(count) {
    if (!count || !(count[0] + count[1] + count[2])) return "";
    const label = `${count[0]} of ${plural(count[0] + count[1], "vote")} yes${count[2] ? `, ${count[2]} unusable` : ""}`;
    return el(
      "span",
      { class: "votes", role: "img", "aria-label": label, title: label },
      ["y", "n", "u"].map((kind, at) =>
        Array.from({ length: Math.min(20, count[at]) }, () => el("i", { class: kind })),
      ),
    );
  }
  function judged(detail) {
    const made = [
      ...detail.attempts.map(attempt => [`run ${attempt.repeat}, ${attempt.purpose}`, attempt]),
      ...detail.control.map(attempt => [`main's agent, run ${attempt.repeat}`, attempt]),
    ];
    return el(
      "div",
      { class: "stack" },
      made.map(([title, attempt]) =>
        card(
          title,
          "",
          el(
            "div",
            { class: "pad" },
            attempt.error && el("p", { class: "warn" }, attempt.error),
            attempt.scores.map(scoreOf),
          ),
        ),
      ),
    );
  }
  function scoreOf(score) {
    const tone = score.status === "error" ? "warn" : score.passed === false ? "bad" : "";
    const told = score.turns.filter(
      turn => score.turns.length > 1 || turn.rubrics.length || turn.sentences.length || turn.votes,
    );
    return el(
      "section",
      { class: "score" },
      el("h3", null, name(score.criterion), " ", el("b", { class: tone }, valueOf(score))),
      score.reason && el("p", { class: "text" }, score.reason),
      told.map(turn =>
        el(
          "div",
          { class: "judged" },
          el(
            "p",
            null,
            el("span", { class: "dim" }, `turn ${turn.turn + 1} `),
            turn.score === null ? "" : turn.score.toFixed(2),
            " ",
            votes(turn.votes),
            " ",
            turn.reason,
          ),
          turn.rubrics.map(([id, text, value, count, why]) =>
            el(
              "div",
              { class: "said" },
              el(
                "p",
                null,
                mark(value === null ? "warn" : value >= 1 ? "good" : "bad"),
                hidden(value === null ? "no score" : value >= 1 ? "met" : "not met"),
                " ",
                name(id),
                " ",
                text,
                " ",
                votes(count),
              ),
              why && el("blockquote", null, why),
            ),
          ),
          turn.sentences.map(([sentence, label, why]) =>
            el(
              "div",
              { class: "said" },
              el(
                "p",
                null,
                el(
                  "b",
                  { class: label === "supported" ? "good" : label === "not_applicable" ? "dim" : "bad" },
                  label.replace("_", " "),
                ),
                ` “${sentence}”`,
              ),
              why && el("blockquote", null, why),
            ),
          ),
        ),
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
  function time(detail) {
    const made = [...detail.attempts, ...detail.control].filter(attempt => attempt.seconds[0] !== null);
    const longest = Math.max(0.001, ...made.map(attempt => attempt.seconds[0]));
    if (!made.length) return el("p", { class: "dim" }, "No times were measured.");
    return el(
      "div",
      { class: "card pad" },
      el(
        "p",
        { class: "legend dim" },
        el("i", { class: "model" }),
        "model ",
        el("i", { class: "tool" }),
        "tools ",
        el("i", { class: "wait" }),
        "everything else",
      ),
      el(
        "dl",
        { class: "bars" },
        made.map((attempt, at) => {
          const [total, model, tool] = attempt.seconds.map(value => value || 0);
          const parts = [
            ["model", model],
            ["tool", tool],
            ["wait", Math.max(0, total - model - tool)],
          ];
          let x = 0;
          const label = parts.map(([kind, value]) => `${kind} ${value.toFixed(2)} s`).join(", ");
          return [
            el("dt", null, at < detail.attempts.length ? `run ${attempt.repeat}` : `main's agent ${attempt.repeat}`),
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
          ["Commit", "When", "Models", "Outcome"],
          [...row.past]
            .map((one, at) =>
              el(
                "tr",
                null,
                el("th", { scope: "row" }, el("code", null, past[at].commit.slice(0, 10))),
                el("td", null, past[at].at),
                el("td", null, past[at].models.join(", ")),
                el("td", { class: one === "f" ? "bad" : "" }, OUTCOMES[one]),
              ),
            )
            .reverse(),
        ),
      ),
    );
  }

  /* ---- history ---- */
  function historyView() {
    if (!past.length)
      return el(
        "div",
        { class: "stack" },
        el("h1", null, "History"),
        el("p", { class: "dim" }, "Main has no recorded runs yet."),
      );
    const ever = rows.filter(row => /[fm]/.test(row.past) || !"p-".includes(here(row)));
    const box = el("div");
    const draw = found =>
      box.replaceChildren(
        table(
          "Cases over main's runs",
          ["Case", "Main's runs, this change last", "Since"],
          found.map(row =>
            el(
              "tr",
              null,
              el("th", { scope: "row" }, el("a", { href: caseLink(row, { tab: "past" }) }, name(row.case))),
              el(
                "td",
                null,
                strip(row.past),
                " ",
                el(
                  "span",
                  { class: "strip", role: "img", "aria-label": `here: ${OUTCOMES[here(row)] || "error"}` },
                  el("i", { class: `o${here(row) === "-" ? "n" : here(row)}` }),
                ),
              ),
              el("td", null, failingSince(row.past)),
            ),
          ),
        ),
      );
    draw(ever.slice(0, PAGE));
    const rate = past.map(run => (run.cases ? run.passed / run.cases : null)),
      run = rows.filter(row => row.runs !== "");
    const tiles = [
      [
        "share of cases that pass",
        "Share of cases that pass",
        rate,
        run.length ? run.filter(row => here(row) === "p").length / run.length : null,
        "",
      ],
      ...frame.criteria.map(row => [
        row.name,
        name(row.name),
        past.map(one => one.means[row.name] ?? null),
        row.value,
        row.tone,
      ]),
    ];
    const events = past.flatMap((one, at) =>
      at && one.models.join() !== past[at - 1].models.join()
        ? [
            `${one.commit.slice(0, 7)}: model ${past[at - 1].models.join(", ") || "unknown"} → ${one.models.join(", ") || "unknown"}`,
          ]
        : [],
    );
    return el(
      "div",
      { class: "stack" },
      el("h1", null, "History"),
      el(
        "section",
        { class: "card" },
        el(
          "dl",
          { class: "tiles" },
          tiles.map(([label, shown, values, now, tone]) =>
            el(
              "div",
              null,
              el("dt", { class: "dim" }, shown),
              el(
                "dd",
                null,
                now === null || now === undefined ? "–" : now.toFixed(2),
                " ",
                chart(label, values, now ?? null, tone, 220, 56),
              ),
            ),
          ),
        ),
      ),
      events.length > 0 &&
        card(
          "What changed on main",
          "dashed lines above",
          el(
            "ul",
            { class: "pad" },
            events.map(event => el("li", null, event)),
          ),
        ),
      card(
        "Case by case",
        `${number(ever.length)} of ${plural(rows.length, "case")}: those that ever failed`,
        box,
        ever.length < rows.length &&
          el(
            "p",
            { class: "pad" },
            el(
              "button",
              {
                type: "button",
                class: "chip",
                onclick: event => {
                  draw(rows.slice(0, 1000));
                  event.target.remove();
                },
              },
              "Show all",
            ),
          ),
      ),
    );
  }

  /* ---- review: is the judge right? ---- */
  const verdicts = rows
    .flatMap((row, at) =>
      (details[at] ? details[at].attempts : []).flatMap(attempt =>
        attempt.scores.flatMap(score =>
          score.turns.flatMap(turn => {
            const key = extra =>
              JSON.stringify([row.agent, row.set, row.case, attempt.repeat, turn.turn, score.criterion, ...extra]);
            const common = { row, attempt, turn: turn.turn, criterion: score.criterion };
            return [
              ...turn.sentences
                .filter(([, label]) => !["supported", "not_applicable"].includes(label))
                .map(([sentence, label, why]) => ({
                  ...common,
                  id: key([sentence]),
                  asked: sentence,
                  says: label.replace("_", " "),
                  why,
                  split: 1,
                })),
              ...turn.rubrics
                .filter(([, , value, count]) => value !== null && (value < 1 || (count && count[0] && count[1])))
                .map(([id, text, value, count, why]) => ({
                  ...common,
                  id: key([id]),
                  asked: text,
                  says: value >= 1 ? "met" : "not met",
                  why,
                  votes: count,
                  split: count && count[0] && count[1] ? 0 : 1,
                })),
              ...(turn.votes && (turn.score < 1 || (turn.votes[0] && turn.votes[1]))
                ? [
                    {
                      ...common,
                      id: key([]),
                      asked: "",
                      says: turn.score >= 1 ? "the same as the reference" : "not the reference",
                      why: turn.reason,
                      votes: turn.votes,
                      split: turn.votes[0] && turn.votes[1] ? 0 : 1,
                    },
                  ]
                : []),
            ];
          }),
        ),
      ),
    )
    .sort((a, b) => a.split - b.split);
  const labels = new Map();
  const exported = () =>
    JSON.stringify(
      verdicts
        .filter(one => labels.has(one.id))
        .map(one => ({
          agent: one.row.agent,
          eval_set: one.row.set,
          case: one.row.case,
          run: one.attempt.repeat,
          turn: one.turn + 1,
          criterion: one.criterion,
          asked: one.asked,
          judge: one.says,
          ...labels.get(one.id),
        })),
      null,
      1,
    );
  let reviewing = 0;
  function review() {
    if (!verdicts.length)
      return el(
        "div",
        { class: "stack" },
        el("h1", null, "Is the judge right?"),
        el(
          "p",
          { class: "dim" },
          "No judge objected to anything, and no votes were split: there is nothing to review.",
        ),
      );
    const one = verdicts[reviewing % verdicts.length],
      given = one.attempt.turns[one.turn] || { user: "", answer: "", calls: [] };
    const detail = details[rows.indexOf(one.row)],
      wanted = detail.expected[one.turn];
    const right = [...labels.values()].filter(label => label.right).length;
    const mine = labels.get(one.id);
    const note = el(
      "textarea",
      { rows: 2, "aria-label": "Note", placeholder: "Why? (a note for the export)" },
      mine ? mine.note : "",
    );
    const answer = value => {
      if (value === null) labels.delete(one.id);
      else labels.set(one.id, { right: value, note: note.value });
      reviewing = (reviewing + 1) % verdicts.length;
      render();
    };
    const big = (key, label, value) =>
      el(
        "button",
        {
          type: "button",
          class: "big",
          "data-key": key,
          "aria-pressed": String(!!mine && mine.right === value),
          onclick: () => answer(value),
        },
        label,
        " ",
        el("kbd", null, key),
      );
    const download = el("a", { class: "button", download: "review.json", href: "#" }, "Save review.json");
    download.addEventListener("click", () => {
      download.href = URL.createObjectURL(new Blob([exported()], { type: "application/json" }));
    });
    return el(
      "div",
      { class: "stack" },
      el("h1", null, "Is the judge right?"),
      el(
        "p",
        { class: "dim", role: "status" },
        `${reviewing + 1} of ${number(verdicts.length)} · ${labels.size} reviewed · you agree with the judge on ${right} of ${labels.size}`,
      ),
      el(
        "div",
        { class: "review" },
        card(
          [name(one.row.case)],
          [`turn ${one.turn + 1} · `, name(one.criterion)],
          el(
            "div",
            { class: "pad" },
            el("h3", null, "User"),
            el("p", { class: "text" }, given.user),
            el("h3", null, "Answer"),
            el("p", { class: "text quote" }, underline(given.answer, one.asked ? [[one.asked]] : [])),
            wanted && wanted.answer && [el("h3", null, "Reference"), el("p", { class: "text quote" }, wanted.answer)],
            given.calls.length > 0 && [
              el("h3", null, "Calls"),
              given.calls.map(each => el("p", null, call(each, null, ""))),
            ],
          ),
        ),
        el(
          "div",
          { class: "stack" },
          card(
            "The judge says",
            "",
            el(
              "div",
              { class: "pad" },
              one.asked && el("p", null, `“${one.asked}”`),
              el("p", null, el("b", null, one.says), " ", votes(one.votes)),
              one.why && el("blockquote", null, one.why),
            ),
          ),
          big("a", "The judge is right", true),
          big("d", "The judge is wrong", false),
          big("s", "Not sure, next", null),
          note,
          el("div", { class: "actions" }, copy(exported, "the labels as JSON", "Copy labels"), download),
        ),
      ),
    );
  }

  /* ---- run ---- */
  function run() {
    return el(
      "div",
      { class: "stack" },
      el("h1", { class: "hidden" }, "Run"),
      card(
        "What was run",
        "",
        table(
          "Conditions",
          [hidden("What"), hidden("Value")],
          frame.run
            .filter(([, values]) => values.some(Boolean))
            .map(([label, values]) =>
              el(
                "tr",
                null,
                el("th", { scope: "row", class: "dim" }, label),
                el(
                  "td",
                  null,
                  values.map(value => el("div", null, value)),
                ),
              ),
            ),
        ),
      ),
      frame.uses.rows.length > 0 &&
        card(
          "Model use",
          "",
          table(
            "Model use",
            frame.uses.columns.map((column, at) => [column, at > 1 ? "n" : ""]),
            frame.uses.rows.map(cells =>
              el(
                "tr",
                null,
                cells.map((cell, at) =>
                  el(at ? "td" : "th", { class: at > 1 ? "n" : "", scope: at ? null : "row" }, cell),
                ),
              ),
            ),
          ),
        ),
      frame.links.length > 0 &&
        card(
          "Files",
          "",
          el(
            "ul",
            { class: "pad plain" },
            frame.links.map(each =>
              el(
                "li",
                null,
                each.address
                  ? el("a", { href: each.target, rel: "noopener noreferrer" }, each.label)
                  : [each.label, ": ", el("code", null, each.target)],
              ),
            ),
          ),
        ),
    );
  }

  /* ---- frame of the page ---- */
  const VIEWS = [
    ["", "Overview", overview],
    ["cases", "Cases", cases, rows.length],
    ["history", "History", historyView],
    ["review", "Review", review, verdicts.length],
    ["run", "Run", run],
  ];
  const main = el("main", { id: "main", tabindex: -1 });
  const toast = el("div", { class: "toast", role: "status" });
  const nav = el("nav", { "aria-label": "Views" });
  const keys = el(
    "dialog",
    { "aria-label": "Keyboard" },
    el("h2", null, "Keyboard"),
    el(
      "dl",
      null,
      [
        ["/", "search"],
        ["j, k", "next and previous case, or move in the list"],
        ["1 … 5", VIEWS.map(([, label]) => label).join(", ")],
        ["← →", "tabs of a case"],
        ["c", "copy a link to this view"],
        ["t", "light or dark"],
        ["a, d, s", "in Review: right, wrong, not sure"],
        ["?", "this list"],
      ].map(([key, what]) => [el("dt", null, el("kbd", null, key)), el("dd", null, what)]),
    ),
    el("form", { method: "dialog" }, el("button", { class: "chip" }, "Close")),
  );
  const theme = el(
    "button",
    {
      type: "button",
      class: "chip",
      "aria-label": "Switch between light and dark",
      onclick: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
    },
    "◐",
  );
  const setTheme = value => {
    document.documentElement.dataset.theme = value;
  };
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.body.append(
    el(
      "a",
      {
        class: "skip",
        href: "#main",
        onclick: event => {
          event.preventDefault();
          main.focus();
        },
      },
      "Skip to content",
    ),
    el(
      "header",
      { class: "top" },
      el(
        "div",
        { class: "bar" },
        el("b", null, "agent-eval"),
        " ",
        el("span", { class: `pill ${frame.outcome}` }, frame.label),
        el("span", { class: "space" }),
        el(
          "button",
          { type: "button", class: "chip", "aria-label": "Keyboard shortcuts", onclick: () => keys.showModal() },
          "?",
        ),
        theme,
      ),
      nav,
    ),
    main,
    toast,
    keys,
  );
  function render() {
    const here = address();
    const view = VIEWS.find(([key]) => key === here.view) || VIEWS[0];
    const active = here.view === "case" ? "cases" : view[0];
    nav.replaceChildren(
      ...VIEWS.map(([key, label, , count]) =>
        el(
          "a",
          { href: `#/${key}`, "aria-current": key === active ? "page" : null },
          label,
          count !== undefined && el("span", { class: "count" }, number(count)),
        ),
      ),
    );
    main.replaceChildren(here.view === "case" ? oneCase(here.parts) : view[2]());
    const named = here.view === "case" ? here.parts[2] : view[1];
    document.title = `${named} · ${frame.label} · agent-eval`;
  }
  addEventListener("hashchange", () => {
    render();
    scrollTo(0, 0);
  });
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
    if (event.target.matches("input, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const view = address().view,
      key = event.key;
    if (key === "/") {
      event.preventDefault();
      if (view !== "cases") {
        history.pushState(null, "", "#/cases");
        render();
      }
      document.getElementById("search").focus();
    } else if (key === "?") keys.showModal();
    else if (key === "t") theme.click();
    else if (key === "c") copyText(location.href, "a link to this view");
    else if (/^[1-5]$/.test(key)) location.hash = `#/${VIEWS[key - 1][0]}`;
    else if ((key === "j" || key === "k") && view === "case") {
      const step = main.querySelector(`[data-step="${key === "j" ? 1 : -1}"][href]`);
      if (step) step.click();
    } else if ((key === "j" || key === "k") && view === "cases") {
      const found = [...main.querySelectorAll("tbody th a")],
        now = found.indexOf(document.activeElement);
      const target = found[key === "j" ? now + 1 : Math.max(0, now - 1)];
      if (target) target.focus();
    } else if ("ads".includes(key) && view === "review") {
      const button = main.querySelector(`[data-key="${key}"]`);
      if (button) button.click();
    }
  });
  render();
})();
