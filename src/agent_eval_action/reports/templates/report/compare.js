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
