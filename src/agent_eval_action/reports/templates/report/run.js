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
