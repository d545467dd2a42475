/* ---- frame of the page ---- */
const VIEWS = [
  ["", "Overview", overview],
  ["cases", "Cases", cases, rows.length],
  ["history", "History", historyView],
  ["review", "Review", review, verdicts.length],
  ["run", "Run", run],
];
const main = el("main", { id: "main", tabindex: -1 });
const toast = el("div", { class: "toast", role: "status" });
const nav = el("nav", { "aria-label": "Views" });
const keys = el(
  "dialog",
  { "aria-label": "Keyboard" },
  el("h2", null, "Keyboard"),
  el(
    "dl",
    null,
    [
      ["/", "search"],
      ["j, k", "next and previous case, or move in the list"],
      ["1 … 5", VIEWS.map(([, label]) => label).join(", ")],
      ["← →", "tabs of a case"],
      ["c", "copy a link to this view"],
      ["t", "light or dark"],
      ["a, d, s", "in Review: right, wrong, not sure"],
      ["?", "this list"],
    ].map(([key, what]) => [el("dt", null, el("kbd", null, key)), el("dd", null, what)]),
  ),
  el("form", { method: "dialog" }, el("button", { class: "chip" }, "Close")),
);
const theme = el(
  "button",
  {
    type: "button",
    class: "chip",
    "aria-label": "Switch between light and dark",
    onclick: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  },
  "◐",
);
const setTheme = value => {
  document.documentElement.dataset.theme = value;
};
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.body.append(
  el(
    "a",
    {
      class: "skip",
      href: "#main",
      onclick: event => {
        event.preventDefault();
        main.focus();
      },
    },
    "Skip to content",
  ),
  el(
    "header",
    { class: "top" },
    el(
      "div",
      { class: "bar" },
      el("b", null, "agent-eval"),
      " ",
      el("span", { class: `pill ${frame.outcome}` }, frame.label),
      frame.commits[0] &&
        el(
          "span",
          { class: "dim commits" },
          el("code", null, frame.commits[0]),
          frame.commits[1] && [" against main ", el("code", null, frame.commits[1])],
        ),
      el("span", { class: "space" }),
      el(
        "button",
        { type: "button", class: "chip", "aria-label": "Keyboard shortcuts", onclick: () => keys.showModal() },
        "?",
      ),
      theme,
    ),
    nav,
  ),
  main,
  toast,
  keys,
);
function render() {
  const here = address();
  const view = VIEWS.find(([key]) => key === here.view) || VIEWS[0];
  const active = here.view === "case" ? "cases" : view[0];
  nav.replaceChildren(
    ...VIEWS.map(([key, label, , count]) =>
      el(
        "a",
        { href: `#/${key}`, "aria-current": key === active ? "page" : null },
        label,
        count !== undefined && el("span", { class: "count" }, number(count)),
      ),
    ),
  );
  main.replaceChildren(here.view === "case" ? oneCase(here.parts) : view[2]());
  const named = here.view === "case" ? here.parts[2] : view[1];
  document.title = `${named} · ${frame.label} · agent-eval`;
}
addEventListener("hashchange", () => {
  render();
  scrollTo(0, 0);
});
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  if (event.target.matches("input, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const view = address().view,
    key = event.key;
  if (key === "/") {
    event.preventDefault();
    if (view !== "cases") {
      history.pushState(null, "", "#/cases");
      render();
    }
    document.getElementById("search").focus();
  } else if (key === "?") keys.showModal();
  else if (key === "t") theme.click();
  else if (key === "c") copyText(location.href, "a link to this view");
  else if (/^[1-5]$/.test(key)) location.hash = `#/${VIEWS[key - 1][0]}`;
  else if ((key === "j" || key === "k") && view === "case") {
    const step = main.querySelector(`[data-step="${key === "j" ? 1 : -1}"][href]`);
    if (step) step.click();
  } else if ((key === "j" || key === "k") && view === "cases") {
    const found = [...main.querySelectorAll("tbody th a")],
      now = found.indexOf(document.activeElement);
    const target = found[key === "j" ? now + 1 : Math.max(0, now - 1)];
    if (target) target.focus();
  } else if ("ads".includes(key) && view === "review") {
    const button = main.querySelector(`[data-key="${key}"]`);
    if (button) button.click();
  }
});
render();
prepareSearch();
