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
    frame.phases.length > 0 && phases(),
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
    data.left_out > 0 &&
      el(
        "p",
        { class: "card pad" },
        `${plural(data.left_out, "file")} of the conversations did not fit into this page. Their cases name them; they are in `,
        el("code", null, "blobs/"),
        " and ",
        el("code", null, "attempts.jsonl"),
        ".",
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
function phases() {
  const total = Math.max(frame.seconds, ...frame.phases.map(([, , start, seconds]) => start + seconds), 0.001);
  return card(
    "Where the time went",
    `${frame.seconds.toFixed(1)} s`,
    table(
      "Phases of the run",
      ["Phase", ["When", "bar"], ["Attempts", "n wide"], ["Took", "n"]],
      frame.phases.map(([label, attempts, start, seconds], at) =>
        el(
          "tr",
          null,
          el("th", { scope: "row" }, label),
          el(
            "td",
            { class: "bar" },
            svg(
              "svg",
              {
                viewBox: "0 0 1000 20",
                preserveAspectRatio: "none",
                class: "spans",
                role: "img",
                "aria-label": `from ${start.toFixed(1)} s to ${(start + seconds).toFixed(1)} s`,
              },
              svg("rect", {
                x: (start / total) * 1000,
                width: Math.max(3, (seconds / total) * 1000),
                y: 5,
                height: 10,
                class: at % 2 ? "tool" : "model",
              }),
            ),
          ),
          el("td", { class: "n wide" }, attempts),
          el("td", { class: "n" }, `${seconds.toFixed(1)} s`),
        ),
      ),
      "waterfall",
    ),
  );
}
