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
        causes.length > 8 && el("p", null, el("a", { href: "#/cases" }, `${plural(causes.length - 8, "more cause")}`)),
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
          frame.tiles.map(([label, value, beside]) =>
            el(
              "div",
              null,
              el("dt", { class: "dim" }, label),
              el("dd", null, value, beside && el("small", null, beside)),
            ),
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
            "details",
            { open: places.length < 3 },
            el("summary", null, plural(places.length, "place")),
            el(
              "ul",
              null,
              places.map(place => el("li", null, prose(place))),
            ),
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
