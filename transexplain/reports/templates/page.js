"use strict";
// Search and filters over the examples, and tables that sort. Without it the page is whole, so
// every control is made or shown here. Names and texts are only ever read and written as text.
(() => {
  const words = (text) => text.toLowerCase().normalize("NFKC");
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  const plain = (number) => number.toLocaleString("en");
  const of = (part, whole) => (part === whole ? plain(whole) : `${plain(part)} of ${plain(whole)}`);

  function make(tag, text) {
    const made = document.createElement(tag);
    made.textContent = text;
    return made;
  }

  // ---- examples
  function read(article) {
    const text = article.querySelector(".tx");
    return {
      article,
      block: article.closest(".block"),
      text: words(`${article.dataset.id}\n${text ? text.textContent : ""}`),
      predicted: [article.dataset.predicted],
      label: "label" in article.dataset ? [article.dataset.label] : [],
      outcome: [article.dataset.outcome],
      explained: JSON.parse(article.dataset.explained),
      group: JSON.parse(article.dataset.groups),
    };
  }

  function fill(select, examples) {
    const found = new Set(examples.flatMap((one) => one[select.name]));
    if (select.dataset.open === undefined) {
      for (const name of [...found].sort(collator.compare)) {
        const option = make("option", name || "(empty)");
        option.value = name; // as it is: the text of an option loses double blanks
        select.append(option);
      }
    }
    select.parentElement.hidden = found.size < (select.name === "group" ? 1 : 2);
  }

  function chosen(select) {
    return select.selectedIndex > 0 ? select.value : null; // a label may be the empty text
  }

  function findable(section) {
    const examples = [...section.querySelectorAll("article")].map(read);
    const blocks = [...section.querySelectorAll(":scope > .block")];
    const panel = section.querySelector(".find");
    const search = panel.querySelector("input");
    const selects = [...panel.querySelectorAll("select")];
    const reset = panel.querySelector("button");
    const count = section.querySelector(".count");
    const totals = new Map(blocks.map((block) => [block, block.querySelectorAll("article").length]));
    selects.forEach((select) => fill(select, examples));

    function fits(example, sought, wanted) {
      return (
        sought.every((word) => example.text.includes(word)) &&
        wanted.every(([name, value]) => value === null || example[name].includes(value))
      );
    }

    // among the examples shown, only the explanations of the chosen class
    function single(wanted) {
      for (const part of section.querySelectorAll("[data-class]")) {
        part.hidden = wanted !== null && part.dataset.class !== wanted;
      }
    }

    function show() {
      const sought = words(search.value).split(/\s+/).filter(Boolean);
      const wanted = selects.map((select) => [select.name, chosen(select)]);
      single(new Map(wanted).get("explained"));
      const left = new Map(blocks.map((block) => [block, 0]));
      for (const example of examples) {
        example.article.hidden = !fits(example, sought, wanted);
        left.set(example.block, left.get(example.block) + !example.article.hidden);
      }
      left.forEach((number, block) => {
        const total = totals.get(block);
        block.hidden = number === 0;
        block.querySelector("h3 .soft").textContent = of(number, total);
      });
      const shown = [...left.values()].reduce((sum, number) => sum + number, 0);
      const filtered = sought.length > 0 || wanted.some(([, value]) => value !== null);
      reset.hidden = !filtered;
      count.classList.toggle("filtered", filtered);
      count.textContent =
        shown === 0
          ? "No example fits."
          : `${plain(shown)} of ${plain(examples.length)} examples`;
    }

    search.addEventListener("input", show);
    selects.forEach((select) => select.addEventListener("change", show));
    reset.addEventListener("click", () => {
      search.value = "";
      selects.forEach((select) => (select.selectedIndex = 0));
      show();
      search.focus();
    });
    panel.hidden = false;
    count.hidden = false;
    show();
  }

  // ---- tables
  function key(row, column) {
    const cell = row.cells[column];
    if (!cell) return null;
    if (!("value" in cell.dataset)) return cell.textContent.trim() || null;
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  }

  function compared(one, other) {
    return typeof one === "number" && typeof other === "number"
      ? one - other
      : collator.compare(String(one), String(other));
  }

  // rows without a value stay last whichever way; equal ones keep the order of the report
  function sorted(rows, column, way) {
    const keyed = rows.map((row) => [row, key(row, column)]);
    const full = keyed.filter(([, value]) => value !== null);
    const empty = keyed.filter(([, value]) => value === null);
    const sign = way === "ascending" ? 1 : -1;
    full.sort((one, other) => sign * compared(one[1], other[1]));
    return [...full, ...empty].map(([row]) => row);
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    if (rows.length < 2) return;

    function sort(head, column) {
      const numeric = rows.some((row) => typeof key(row, column) === "number");
      const ways = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
      const way = [...ways, null][ways.indexOf(head.getAttribute("aria-sort")) + 1];
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      if (way) head.setAttribute("aria-sort", way);
      body.append(...(way ? sorted(rows, column, way) : rows));
    }

    heads.forEach((head, column) => {
      if (!head.textContent.trim() || head.querySelector("svg")) return;
      const button = make("button", "");
      button.type = "button";
      button.title = "Sort by this column; a third time: as in the report";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(head, column));
      head.append(button);
    });
  }

  // ---- the contents follow the reader: the last section whose beginning was passed
  function following(nav) {
    const entries = [...nav.querySelectorAll("a")]
      .map((link) => ({ link, target: document.getElementById(link.hash.slice(1)) }))
      .filter((one) => one.target);
    let current = null;
    function mark() {
      const line = nav.getBoundingClientRect().bottom + 40;
      const passed = entries.filter((one) => one.target.getBoundingClientRect().top <= line);
      const found = passed.length > 0 ? passed.at(-1).link : null;
      if (found === current) return;
      current?.removeAttribute("aria-current");
      found?.setAttribute("aria-current", "location");
      current = found;
      if (found) nav.scrollTo({ left: found.offsetLeft - nav.clientWidth / 2 });
    }
    let waiting = false;
    document.addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        mark();
      });
    }, { passive: true });
    mark();
  }

  document.querySelectorAll("body > nav").forEach(following);
  document.querySelectorAll("section.examples").forEach(findable);
  document.querySelectorAll("table.sortable").forEach(sortable);
})();
