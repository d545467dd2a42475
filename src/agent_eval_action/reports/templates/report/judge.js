function votes(count) {
  if (!count || !(count[0] + count[1] + count[2])) return "";
  const label = `${count[0]} of ${plural(count[0] + count[1], "vote")} yes${count[2] ? `, ${count[2]} unusable` : ""}`;
  return el(
    "span",
    { class: "votes", role: "img", "aria-label": label, title: label },
    ["y", "n", "u"].map((kind, at) => Array.from({ length: Math.min(20, count[at]) }, () => el("i", { class: kind }))),
  );
}
function voteWords(count, why) {
  if (!count || !count[3]) return why && el("blockquote", null, why);
  return el(
    "ul",
    { class: "cast" },
    count[3].map(([yes, words]) =>
      el("li", null, el("b", { class: yes ? "good" : "bad" }, yes ? "yes" : "no"), " ", words || "no reason given"),
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
        voteWords(turn.votes, ""),
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
            voteWords(count, why),
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
