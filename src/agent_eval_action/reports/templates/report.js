(function () {
  "use strict";
  var bar = document.getElementById("bar"), list = document.getElementById("cases");
  if (!bar || !list) return;
  var cases = Array.prototype.slice.call(list.children), group = "", text = "";
  var names = cases.map(function (one) { return (one.getAttribute("data-name") || "").toLowerCase(); });
  var count = document.getElementById("count");
  function show() {
    var shown = 0;
    cases.forEach(function (one, at) {
      var on = (!group || one.getAttribute("data-group") === group) && names[at].indexOf(text) >= 0;
      one.hidden = !on;
      shown += on ? 1 : 0;
    });
    count.textContent = shown + " of " + cases.length + " shown";
  }
  bar.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    if (!button) return;
    group = button.getAttribute("data-group");
    bar.querySelectorAll("button").forEach(function (one) { one.setAttribute("aria-pressed", String(one === button)); });
    show();
  });
  document.getElementById("find").addEventListener("input", function (event) {
    text = event.target.value.toLowerCase();
    show();
  });
  bar.hidden = false;
  show();
})();
