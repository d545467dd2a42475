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
const media = data.media || {};
const past = frame.history; /* main's runs: the oldest first, this change follows the last */
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
/* Shows something else in a box; the focus stays on the control of the same key. */
function redraw(box, ...children) {
  const focused = box.contains(document.activeElement) ? document.activeElement.dataset.key : "";
  box.replaceChildren();
  fill(box, null, children);
  if (focused) box.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
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
        { class: columns.every(column => column instanceof Node) ? "hidden" : null },
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
