"use strict";
(function () {
{% for view in ["elements", "drawings", "media", "overview", "cases", "case", "compare", "judge", "timing", "history", "review", "run", "page"] %}
{% include "report/" ~ view ~ ".js" %}
{% endfor %}
})();
