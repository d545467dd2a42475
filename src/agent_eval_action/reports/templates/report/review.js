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
      el("p", { class: "dim" }, "No judge objected to anything, and no votes were split: there is nothing to review."),
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
