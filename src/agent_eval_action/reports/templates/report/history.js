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
