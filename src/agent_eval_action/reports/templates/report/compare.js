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
const allRuns = detail => [
  ...detail.attempts.map(attempt => ["run", attempt]),
  ...detail.control.map(attempt => ["control", attempt]),
];
/* The run that is looked at: the one in the address, else the first that is not as it should be. */
function chosenRun(detail) {
  const count = allRuns(detail).length,
    bad = detail.attempts.findIndex(attempt => attempt.pip !== "p");
  return Math.min(count - 1, Math.max(0, (parseInt(address().query.get("run"), 10) || bad + 1 || 1) - 1));
}
const chip = (key, on, label, act) =>
  el("button", { type: "button", class: "chip", "data-key": key, "aria-pressed": String(on), onclick: act }, label);
const runChips = (detail, listed, shown, draw) =>
  allRuns(detail).map(
    ([kind, made], at) =>
      listed.some(([, one]) => one === made) &&
      chip(
        `run${at}`,
        made === shown,
        [kind === "run" ? `run ${made.repeat} ` : `main's agent ${made.repeat} `, pips(made.pip)],
        () => {
          change({ run: String(at + 1) });
          draw();
        },
      ),
  );
const callsOf = turns => JSON.stringify(turns.map(turn => turn.calls));
function compare(detail) {
  const all = allRuns(detail);
  if (!all.length) return el("p", { class: "dim" }, "This run did not run the case.");
  const beside = detail.control.find(attempt => attempt.pip === "p") || detail.control.find(attempt => !attempt.error);
  const sides = [
    ["baseline", "main, usual run", "main", detail.baseline],
    ["expected", "expected", "expected", detail.expected],
    ["control", "main's agent, just now", "main", beside ? beside.turns : []],
  ].filter(([, , , turns]) => turns.length);
  /* a record of main keeps calls and no answers; main's agent, where it was run beside, has both */
  const usual = beside && beside.pip === "p" ? "control" : "baseline";
  const box = el("div");
  const draw = () => {
    const query = address().query,
      attempt = all[chosenRun(detail)][1],
      differing = query.get("diff") === "1";
    const left = sides.find(([key]) => key === (query.get("left") || usual)) || sides[0] || ["", "", "", []];
    const set = values => () => {
      change(values);
      draw();
    };
    redraw(
      box,
      el(
        "div",
        { class: "chips" },
        sides.map(([key, label]) => chip(key, key === left[0], label, set({ left: key }))),
        sides.length > 0 && el("span", { class: "dim" }, "beside"),
        runChips(detail, all, attempt, draw),
        el("span", { class: "space" }),
        chip("diff", differing, "Only what differs", set({ diff: differing ? "" : "1" })),
      ),
      attempt.error &&
        el(
          "div",
          { class: "card pad" },
          el("p", { class: "warn" }, attempt.error),
          attempt.trace && el("pre", { tabindex: 0 }, attempt.trace),
        ),
      sideBySide(detail, left, attempt, differing),
      el(
        "p",
        { class: "legend dim" },
        el("mark", { class: "del" }, left[0] === "expected" ? "only expected" : "only on main"),
        " ",
        el("mark", { class: "ins" }, "only here"),
        " ",
        el("i", { class: "mod" }),
        "same tool, other arguments ",
        el("span", { class: "unsupported" }, "not supported"),
        " by what the agent was given",
      ),
    );
  };
  draw();
  return box;
}
function objections(attempt) {
  const found = new Map();
  for (const score of attempt.scores)
    for (const turn of score.turns) {
      const bad = turn.sentences.filter(([, label]) => !["supported", "not_applicable"].includes(label));
      if (bad.length) found.set(turn.turn, [...(found.get(turn.turn) || []), ...bad]);
    }
  return found;
}
function sideBySide(detail, [side, , word, before], attempt, differing) {
  const unsupported = objections(attempt),
    count = Math.max(before.length, attempt.turns.length);
  const alike = (old, now, at) =>
    old &&
    now &&
    !unsupported.has(at) &&
    callsOf([old]) === callsOf([now]) &&
    (!old.answer || old.answer === now.answer);
  const shown = Array.from({ length: count }, (_, at) => at).filter(
    at => !differing || !alike(before[at], attempt.turns[at], at),
  );
  const same = detail.attempts.filter(made => callsOf(made.turns) === callsOf(attempt.turns)).length;
  const seen = side === "baseline" && detail.seen;
  const left = seen
    ? `${seen[0]} of ${plural(seen[1], "run")} made these calls`
    : side === "control"
      ? "main's agent, run beside this change"
      : "";
  const right = detail.attempts.includes(attempt)
    ? `run ${attempt.repeat}${detail.attempts.length > 1 ? `, ${same} of ${plural(detail.attempts.length, "run")} made these calls` : ""}`
    : `run ${attempt.repeat}`;
  return el(
    "div",
    { class: "card compare" },
    el(
      "div",
      { class: "pair head" },
      el("div", null, before.length ? word : "nothing to compare with", " ", el("span", { class: "dim" }, left)),
      el(
        "div",
        null,
        detail.attempts.includes(attempt) ? "this change" : "main's agent",
        " ",
        el("span", { class: "dim" }, right),
      ),
    ),
    shown.map(at => turnBeside(before[at], attempt.turns[at], at, word, before.length > 0, unsupported.get(at) || [])),
    shown.length < count &&
      el("p", { class: "pad dim" }, `${plural(count - shown.length, "turn")} without a difference not shown`),
  );
}
/* Calls of agents that this call ran as tools. */
const innerOf = (turn, index) => (turn.inner || []).filter(one => one[0] === index).map(one => one[1]);
function turnBeside(old, now, at, word, compared, bad) {
  const results = new Map();
  for (const turn of [old, now])
    if (turn) turn.calls.forEach((made, index) => results.set(made, [(turn.results || [])[index], innerOf(turn, index)]));
  const calls = align(old ? old.calls : [], now ? now.calls : [], (a, b) => a[0] === b[0]);
  const [oldAnswer, newAnswer] = answers(old, now, bad);
  const missing = made => el("div", { class: "missing" }, `${made[0]} is not called`);
  return [
    el(
      "div",
      { class: "turn" },
      el("b", null, `Turn ${at + 1}`),
      " ",
      el("span", { class: "text" }, (now && now.user) || (old && old.user) || ""),
      mediaOf(now || old, ["user"]),
    ),
    calls.map(([one, two]) =>
      el(
        "div",
        { class: "pair" },
        el("div", { "data-side": word }, one ? call(one, two, "del", results.get(one)) : ""),
        el(
          "div",
          { "data-side": "here" },
          two ? call(two, one, compared ? "ins" : "", results.get(two)) : compared ? missing(one) : "",
        ),
      ),
    ),
    el(
      "div",
      { class: "pair" },
      el("div", { "data-side": word }, oldAnswer, mediaOf(old, ["tool", "answer"])),
      el("div", { "data-side": "here" }, newAnswer, mediaOf(now, ["tool", "answer"])),
    ),
  ];
}
const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);
/* A value of a call, with only those keys marked that the other call has otherwise. */
function valueBeside(value, theirs, kind) {
  if (JSON.stringify(value) === JSON.stringify(theirs)) return JSON.stringify(value);
  if (isObject(value) && isObject(theirs))
    return [
      "{",
      Object.entries(value).map(([key, inner], at) => [
        `${at ? ", " : ""}${JSON.stringify(key)}: `,
        valueBeside(inner, theirs[key], kind),
      ]),
      "}",
    ];
  return el("mark", { class: kind }, JSON.stringify(value));
}
function call([tool, args], other, kind, [result, inner] = ["", []]) {
  const theirs = other ? other[1] : null,
    changed = theirs && JSON.stringify(theirs) !== JSON.stringify(args);
  const parts = Object.entries(args).map(([key, value], at) => {
    const absent = theirs && !(key in theirs);
    const text = theirs && !absent ? valueBeside(value, theirs[key], kind) : JSON.stringify(value);
    return [at ? ", " : "", absent ? el("mark", { class: kind }, `${key}=`, text) : [`${key}=`, text]];
  });
  return el(
    "code",
    { class: `call ${changed ? "mod" : other ? "" : kind}` },
    el("b", null, tool),
    "(",
    parts,
    ")",
    inner.map(made => el("span", { class: "result inner" }, `↳ ${made}`)),
    result && el("span", { class: "result" }, `→ ${result}`),
  );
}
/* Both answers with the words marked that only one of them has, where they share enough to be compared. */
function answers(old, now, bad) {
  const one = old ? old.answer : "",
    two = now ? now.answer : "";
  const left = one.split(/(\s+)/),
    right = two.split(/(\s+)/);
  const notes = bad.map(([sentence, label, why]) =>
    el("small", { class: "bad" }, `${label.replace("_", " ")}: “${sentence}” ${why}`),
  );
  const shown = (first, second) => [
    el("span", { class: "text" }, first),
    [el("span", { class: "text" }, second), notes],
  ];
  if (!one || !two || one === two || left.length * right.length > 400000) return shown(one, underline(two, bad));
  const aligned = align(left, right, (a, b) => a === b);
  const shared = aligned.filter(([a, b]) => a !== null && b !== null && a.trim()).length;
  if (shared < 0.2 * Math.max(left.length, right.length)) return shown(one, underline(two, bad));
  const changed = (pair, index) => pair[1 - index] === null && pair[index].trim() !== "";
  const before = aligned
    .filter(([a]) => a !== null)
    .map(pair => (changed(pair, 0) ? el("mark", { class: "del" }, pair[0]) : pair[0]));
  return shown(
    before,
    wordsUnderlined(
      two,
      aligned.filter(([, b]) => b !== null).map(pair => [pair[1], changed(pair, 1)]),
      bad,
    ),
  );
}
/* The words of an answer: those that are new are marked, those of an unsupported sentence underlined. */
function wordsUnderlined(text, words, bad) {
  const spans = placesOf(text, bad);
  const found = [];
  let at = 0;
  for (const [word, isNew] of words) {
    const inside = spans.some(([from, to]) => at >= from && at < to);
    const style = [isNew && "ins", inside && "unsupported"].filter(Boolean).join(" ");
    found.push(style ? el(isNew ? "mark" : "span", { class: style }, word) : word);
    at += word.length;
  }
  return found;
}
const placesOf = (text, bad) =>
  bad
    .map(([sentence]) => [text.indexOf(sentence), sentence.length])
    .filter(([at]) => at >= 0)
    .map(([at, length]) => [at, at + length])
    .sort((a, b) => a[0] - b[0]);
function underline(text, bad) {
  const found = [];
  let from = 0;
  for (const [start, end] of placesOf(text, bad)) {
    if (start < from) continue;
    found.push(text.slice(from, start), el("span", { class: "unsupported" }, text.slice(start, end)));
    from = end;
  }
  return [...found, text.slice(from)];
}
