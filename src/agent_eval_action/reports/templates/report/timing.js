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
